"""The health of a keeper and of its worker's event loop."""

from __future__ import annotations

from dataclasses import dataclass

#: So many calls of one queue may hang. Each occupies a thread until it returns, and the other
#: queues need threads, too. A worker replaces a keeper with as many hanging calls in all.
MOST_HANGING = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperHealth:
    """The health of a keeper, and of its worker's event loop, at one moment.

    Attributes:
        alive: Whether the keeper's thread runs. False before its start, after its end, and in a
            forked child.
        last_tick_age: Seconds since its last tick began; None before the first.
        late: Whether its next tick is overdue by more than leases can survive.
        replaced: How often it died and was replaced.
        hanging: How many calls were given up and have not returned. Each occupies a thread.
        loop_age: Seconds since the worker's event loop last turned; None if no loop is watched:
            without a worker, while it is not connected, and during its shutdown.
        stalled: Whether `loop_age` is too long for a loop that works.
        connected: Whether the worker is connected to SQS. False before it has connected for the
            first time, and while it connects again; True without a worker.
        standstills: How often nothing in the process ran: it was stopped, its machine was
            suspended, or something let no other thread run.
    """

    alive: bool = False
    last_tick_age: float | None = None
    late: bool = False
    replaced: int = 0
    standstills: int = 0
    hanging: int = 0
    loop_age: float | None = None
    stalled: bool = False
    connected: bool = True
