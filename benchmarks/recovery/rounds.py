"""Runs all scenarios in several rounds, and keeps their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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


def run(stage: Stage, timeouts: Sequence[int], rounds: int) -> list[Round]:
    """Run all scenarios at the same time: they mostly wait.

    The next round begins when only stock workers still wait, for whole seconds. The keepers are
    killed when no more workers start, which would delay what is measured then.

    Args:
        timeouts: Visibility timeouts in seconds, the longest last.
    """
    runs = dict.fromkeys(timeouts, BY_TIMEOUT) | {timeouts[-1]: BY_TIMEOUT + OTHERS}
    keys = [(kind, timeout) for kind in KINDS for timeout in timeouts]
    with ThreadPoolExecutor(max_workers=rounds * 2 * sum(map(len, runs.values()))) as threads:
        all_jobs: list[dict[tuple[str, int], list[Future[Figures]]]] = []
        for _ in range(rounds):
            jobs = {
                (kind, timeout): [
                    threads.submit(scenario, stage, timeout, KINDS[kind])
                    for scenario in runs[timeout]
                ]
                for kind, timeout in keys
            }
            wait(job for (kind, _), each in jobs.items() if KINDS[kind] for job in each)
            all_jobs.append(jobs)
        keepers = [keeper_killed(stage, timeouts[0]) for _ in range(rounds)]
        results = [
            Round({key: _merged(each) for key, each in jobs.items()}, seconds, redeliveries())
            for jobs, (seconds, redeliveries) in zip(all_jobs, keepers, strict=True)
        ]
    stage.end_workers()
    return results


def _merged(jobs: Sequence[Future[Figures]]) -> Figures:
    return {name: value for job in jobs for name, value in job.result().items()}
