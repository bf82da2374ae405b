"""Plays all ways on all traces and keeps what each queue has counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.extension_calls.dotnet import DOTNET
from benchmarks.extension_calls.ours import ours
from benchmarks.extension_calls.pubsub import PUBSUB
from benchmarks.extension_calls.queue import Queue
from benchmarks.extension_calls.timers import MASSTRANSIT, SQS_CONSUMER, TASKIQ
from benchmarks.extension_calls.trace import Window, bound, draw, held_seconds
from benchmarks.extension_calls.ways import Way, play

#: SQS's default for new queues, and four times as much. In seconds.
TIMEOUTS = (30, 120)
OURS = ours()
#: For a comparison with .NET at its threshold.
OURS_WITH_5 = ours(5)
PEERS = (DOTNET, PUBSUB, SQS_CONSUMER, MASSTRANSIT, TASKIQ)
WAYS = (OURS, OURS_WITH_5, *PEERS)


@dataclass(frozen=True, slots=True)
class Count:
    """One way on one trace.

    Attributes:
        held: The seconds for which messages were held, summed over all messages.
        bound: The calls that full batches at the last moment would have needed.
    """

    queue: Queue
    held: float
    bound: float

    @property
    def to_bound(self) -> float:
        """The calls as a multiple of the bound."""
        return self.queue.calls / self.bound

    @property
    def per_hour(self) -> float:
        """Calls per message in flight and hour."""
        return self.queue.calls / self.held * 3600


@dataclass(frozen=True)
class Counts:
    """All rounds, by way, visibility timeout and the mean number of messages in flight."""

    sizes: Sequence[int]
    rounds: Mapping[tuple[Way, int, int], Sequence[Count]]

    def of(self, way: Way, timeout: int) -> list[Count]:
        """Return the counts of a way at a visibility timeout, over all sizes and rounds."""
        return [each for size in self.sizes for each in self.rounds[way, timeout, size]]

    def to_bound(self, way: Way, timeout: int, size: int) -> list[float]:
        """Return the calls as a multiple of the bound, in each round."""
        return [each.to_bound for each in self.rounds[way, timeout, size]]

    def per_hour(self, way: Way, timeout: int, size: int) -> list[float]:
        """Return the calls per message in flight and hour, in each round."""
        return [each.per_hour for each in self.rounds[way, timeout, size]]

    def to_ours(self, way: Way, timeout: int, size: int) -> list[float]:
        """Return the calls as a multiple of ours on the same trace, in each round."""
        pairs = zip(self.rounds[way, timeout, size], self.rounds[OURS, timeout, size], strict=True)
        return [theirs.queue.calls / own.queue.calls for theirs, own in pairs]


def count(windows: Mapping[int, float], rounds: int) -> Counts:
    """Play everything.

    Args:
        windows: For how many seconds calls are counted, by the number of messages in flight.
        rounds: How many traces of each size.
    """
    counts: dict[tuple[Way, int, int], list[Count]] = {}
    for size, seconds in windows.items():
        window = Window(0, seconds)
        for seed in range(rounds):
            trace = draw(size, seconds, seed)
            held = held_seconds(trace, window)
            for timeout in TIMEOUTS:
                for way in WAYS:
                    least = bound(held, every=way.longest(timeout))
                    played = Count(play(way, trace, window, timeout), held, least)
                    counts.setdefault((way, timeout, size), []).append(played)
    return Counts(list(windows), counts)
