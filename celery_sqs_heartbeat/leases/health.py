"""How a keeper does, and the loop of its worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperHealth:
    """What is known of a keeper, and of its worker's loop, at one moment.

    Attributes:
        alive: Whether the thread runs. False before its start, after its end, and in a
            forked child.
        last_tick_age: Seconds since its last round began; None when there was none.
        late: Whether its next round is overdue by more than leases can survive.
        replaced: How often it had died and another thread took its place.
        loop_age: Seconds since the worker's event loop was last seen to turn; None where no loop
            is watched: without a worker, before its start, and when it ends.
        stalled: Whether that is longer than a loop may take that does not stand still.
        standstills: How often the whole process stood still: it was stopped, or its
            machine suspended, or something let no other thread run.
    """

    alive: bool = False
    last_tick_age: float | None = None
    late: bool = False
    replaced: int = 0
    standstills: int = 0
    loop_age: float | None = None
    stalled: bool = False
