"""The figures of one measurement."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Run:
    """The cost of making all tables with one program.

    Attributes:
        wall: Seconds by table.
        cpu: CPU seconds of everything.
        reading_cpu: The part of them before the events existed.
        kinds: CPU seconds by kinds of Spark's threads.
        writing_cpu: About how many of them went into writing Parquet.
        peak_mb: The peak memory of the engine's process.
        heap_mb: The limit of its heap.
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
