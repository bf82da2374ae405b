"""Plays all ways on all traces and keeps what each queue has counted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.extension_calls.dotnet import DOTNET
from benchmarks.extension_calls.ours import ours
from benchmarks.extension_calls.pubsub import PUBSUB
from benchmarks.extension_calls.queue import Tally
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
#: What each trace is played with.
_PLAYS = tuple(itertools.product(TIMEOUTS, WAYS))


@dataclass(frozen=True, slots=True)
class Count:
    """One way on one trace.

    Attributes:
        held: The seconds for which messages were held, summed over all messages.
        bound: The calls that full batches at the last moment would have needed.
    """

    tally: Tally
    held: float
    bound: float

    @property
    def to_bound(self) -> float:
        """The calls as a multiple of the bound."""
        return self.tally.calls / self.bound

    @property
    def per_hour(self) -> float:
        """Calls per message in flight and hour."""
        return self.tally.calls / self.held * 3600


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
        return [theirs.tally.calls / own.tally.calls for theirs, own in pairs]


def count(windows: Mapping[int, float], rounds: int) -> Counts:
    """Play everything, on all cores.

    Args:
        windows: For how many seconds calls are counted, by the number of messages in flight.
        rounds: How many traces of each size.
    """
    traces = [(size, windows[size], seed) for size in windows for seed in range(rounds)]
    counts: dict[tuple[Way, int, int], list[Count]] = {}
    with ProcessPoolExecutor() as processes:
        # Those of most messages first, because they take longest.
        jobs = [processes.submit(_play_all, *trace) for trace in reversed(traces)]
        for (size, _, _), job in zip(traces, reversed(jobs), strict=True):
            for (timeout, way), played in zip(_PLAYS, job.result(), strict=True):
                counts.setdefault((way, timeout, size), []).append(played)
    return Counts(list(windows), counts)


def _play_all(size: int, seconds: float, seed: int) -> list[Count]:
    """Draw a trace, and play it in every way."""
    window = Window(0, seconds)
    trace = draw(size, seconds, seed)
    held = held_seconds(trace, window)
    return [
        Count(
            play(way, trace, window, timeout),
            held,
            bound(held, every=way.longest(timeout)),
        )
        for timeout, way in _PLAYS
    ]
