"""What the part `throughput` measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.endless.working import Kind, Setup
from benchmarks.frame.part import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cells, and how long each is measured.

    Attributes:
        latencies: The latencies of each pool, in seconds.
        prefetches: The prefetch multipliers of each pool.
        rounds: How many workers of each kind are measured, by pool.
        window: The shortest window, in seconds. It grows to a whole cycle of receiving.
        paced: Seconds of messages at a moderate pace.
        idle: Seconds of an empty queue.
    """

    latencies: Mapping[str, Sequence[float]]
    prefetches: Mapping[str, Sequence[int]]
    rounds: Mapping[str, int]
    window: float
    paced: float
    idle: float

    def lives(self) -> Iterator[Sequence[Setup]]:
        """Return the workers to measure, those together that live at the same time.

        Stock workers mostly wait. Ours would disturb each other.
        """
        for pool, prefetches in self.prefetches.items():
            for _ in range(self.rounds[pool]):
                yield [Setup(kind=Kind.STOCK, pool=pool, prefetch=n) for n in prefetches]
                for prefetch in prefetches:
                    yield [Setup(kind=Kind.OURS, pool=pool, prefetch=prefetch)]


#: Three minutes: a stock worker receives once a second, so no window can be short.
_FULL = Plan(
    latencies={
        "prefork": (0.0, 0.005, 0.01, 0.02, 0.05),
        "threads": (0.0, 0.01, 0.05),
        "gevent": (0.0, 0.01, 0.05),
    },
    prefetches={"prefork": (1, 4, 50), "threads": (4,), "gevent": (4,)},
    rounds={"prefork": 2, "threads": 1, "gevent": 1},
    window=1.0,
    paced=5.0,
    idle=6.0,
)
_TINY = Plan(
    latencies={"prefork": (0.0, 0.01)},
    prefetches={"prefork": (4,)},
    rounds={"prefork": 1},
    window=0.2,
    paced=0.5,
    idle=2.2,
)


def plan_of(size: Size) -> Plan:
    """Return what to measure."""
    return _FULL if size is Size.FULL else _TINY
