"""How a keeper's thread does, for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperHealth:
    """What is known of a keeper's thread at one moment.

    Attributes:
        alive: Whether the thread runs. False before its start, after its end, and in a
            forked child.
        last_tick_age: Seconds since its last round began; None when there was none.
        late: Whether its next round is overdue by more than leases can survive.
        replaced: How often it had died and another thread took its place.
        standstills: How often the whole process stood still: it was stopped, or its
            machine suspended, or something let no other thread run.
    """

    alive: bool = False
    last_tick_age: float | None = None
    late: bool = False
    replaced: int = 0
    standstills: int = 0
