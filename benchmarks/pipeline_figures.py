"""What one measurement gives."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Run:
    """What one program took for all tables.

    Attributes:
        wall: Seconds by table.
        cpu: CPU seconds of all.
        reading_cpu: Of them, those until the events were there.
        kinds: CPU seconds by kinds of Spark's threads.
        writing_cpu: About how many were for writing Parquet.
        peak_mb: The most memory that the engine's process held.
        heap_mb: The most that its heap may hold.
        load: The machine's load at the end.
    """

    wall: dict[str, float]
    cpu: float
    reading_cpu: float = 0.0
    kinds: dict[str, float] = field(default_factory=dict)
    writing_cpu: float = 0.0
    peak_mb: float = 0.0
    heap_mb: float = 0.0
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def seconds(self) -> float:
        """Return the seconds for all tables."""
        return sum(self.wall.values())
