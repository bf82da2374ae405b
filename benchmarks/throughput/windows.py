"""Rates of a worker, from the times of its receives and deletes."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.endless.server import Events


def tasks_per_second(receives: Events, deletes: Events) -> float:
    """Return how many messages were deleted per second, over whole cycles of receiving.

    A stock worker with a small prefetch count receives once a second, and deletes what it received
    soon afterwards. So the time is counted from the first receive to the last one. Empty receives
    do not count. Without two receives with messages, it returns 0.
    """
    times = [at for at, count in receives if count]
    if len(times) < 2:
        return 0.0
    begin, end = times[0], times[-1]
    return sum(count for at, count in deletes if begin <= at < end) / (end - begin)


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least that share of the samples does not exceed.

    Args:
        share: From 0 to 1.

    Raises:
        ValueError: There are no samples.
    """
    if not samples:
        raise ValueError("a percentile needs at least one sample")
    ranked = sorted(samples)
    rank = -int(-share * len(ranked) // 1)
    return ranked[max(0, rank - 1)]
