"""Runs all scenarios once, and keeps their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.recovery.scenarios import BY_TIMEOUT, OTHERS, Figures, keeper_killed
from benchmarks.stage import Stage

#: Whether a kind of worker has our heartbeat.
KINDS = {"stock worker": False, "this package": True}


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one run of all scenarios.

    Attributes:
        figures: By kind of worker and visibility timeout. The longest has all, the others some.
        until_extended: From a keeper's death to an extension by another, in seconds.
        redeliveries: How often that keeper's message was received again.
    """

    figures: Mapping[tuple[str, int], Figures]
    until_extended: float
    redeliveries: int


def run(stage: Stage, timeouts: Sequence[int]) -> Round:
    """Run all scenarios at the same time: they mostly wait.

    Args:
        timeouts: Visibility timeouts in seconds, the longest last.
    """
    runs = dict.fromkeys(timeouts, BY_TIMEOUT) | {timeouts[-1]: BY_TIMEOUT + OTHERS}
    with ThreadPoolExecutor(max_workers=2 * sum(map(len, runs.values()))) as threads:
        jobs = {
            (kind, timeout): [
                threads.submit(scenario, stage, timeout, ours) for scenario in runs[timeout]
            ]
            for kind, ours in KINDS.items()
            for timeout in timeouts
        }
        # When the shortest are over, the processes of the others have started.
        for kind in KINDS:
            for job in jobs[kind, timeouts[0]]:
                job.result()
        keeper = threads.submit(keeper_killed, stage, timeouts[0])
        figures = {
            key: {name: value for job in each for name, value in job.result().items()}
            for key, each in jobs.items()
        }
        result = Round(figures, *keeper.result())
    stage.end_workers()
    return result
