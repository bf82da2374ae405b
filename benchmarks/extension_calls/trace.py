"""Which messages arrive when, and how long their tasks run. All times in seconds."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Entries in one ChangeMessageVisibilityBatch (SQS API reference).
BATCH = 10
#: How long a poll waits for a message: kombu's default for `wait_time_seconds`.
POLL_SECONDS = 10.0
#: The mean run time of a task.
MEAN_SECONDS = 300.0
#: How unequal the run times are: the deviation of their logarithm. The longest of a hundred takes
#: ten times as long as the middle one.
SIGMA = 1.0
#: How long before the window messages begin to arrive. Few run longer.
HISTORY_SECONDS = 7_200.0
#: For how long before the window all messages are in flight that should be. Algorithms that gather
#: messages into batches have settled by then.
SETTLE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message, from its receive to the end of its task.

    Attributes:
        polled_at: When the poll was sent that receives it.
    """

    polled_at: float
    received_at: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which calls are counted."""

    start: float
    end: float

    def part_of(self, start: float, end: float) -> float:
        """Return how long another time overlaps this one."""
        return max(0.0, min(end, self.end) - max(start, self.start))


def draw(in_flight: float, seconds: float, seed: int) -> list[Arrival]:
    """Draw Poisson arrivals with lognormal run times, for a window from 0 to `seconds`.

    The number in flight has its mean from the beginning of the window, and long before. Messages
    that end more than `SETTLE_SECONDS` before it are left out: nothing depends on them.

    Args:
        in_flight: How many run at once, on average.
    """
    generator = random.Random(seed)
    median = math.log(MEAN_SECONDS) - SIGMA**2 / 2
    trace, last, now = [], -HISTORY_SECONDS, -HISTORY_SECONDS
    while (now := now + generator.expovariate(in_flight / MEAN_SECONDS)) < seconds:
        ends_at = now + generator.lognormvariate(median, SIGMA)
        if ends_at > -SETTLE_SECONDS:
            trace.append(Arrival(poll_start(last, now), now, ends_at))
        last = now
    return trace


def poll_start(answered_at: float, received_at: float) -> float:
    """Return when the poll was sent that receives a message; polls follow one another.

    Args:
        answered_at: When the last poll with a message was answered.
    """
    empty = math.floor((received_at - answered_at) / POLL_SECONDS)
    return answered_at + empty * POLL_SECONDS


def held_seconds(trace: Sequence[Arrival], window: Window) -> float:
    """Return the seconds in the window for which messages are held, summed over all messages."""
    return sum(window.part_of(each.received_at, each.ends_at) for each in trace)


def bound(held: float, *, every: float) -> float:
    """Return how many full batches it takes to extend each message once in `every` seconds.

    Args:
        held: The sum of the seconds for which messages are held.
    """
    return held / every / BATCH
