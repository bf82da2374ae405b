"""Runs one worker of one pool, and counts the messages that are delivered twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.stage import Stage, taking_over
from benchmarks.starvation.tasks import MODULE
from tests.acceptance.record import receives, wait_for_extensions

#: How many visibility timeouts a task takes.
TIMEOUTS = 3
#: How many workers start at the same time. More would take the CPU from tasks that run already.
STARTING = 8
#: Each worker runs as many tasks at once, except in a solo pool.
TASKS = 4


@dataclass(frozen=True, slots=True)
class Case:
    """A worker and its tasks.

    Attributes:
        blocks: Whether one of the tasks keeps Python's lock. The others wait.
        ours: Whether the worker has our heartbeat. Otherwise each task has a thread.
    """

    pool: str
    blocks: bool
    ours: bool

    @property
    def tasks(self) -> int:
        """How many tasks the worker runs at once."""
        return 1 if self.pool == "solo" else TASKS


def run_all(
    stage: Stage, cases: Sequence[Case], timeout: int, rounds: int
) -> list[dict[Case, int]]:
    """Run all cases of all rounds: the next as soon as the workers of another have started.

    They use no CPU while they wait. Return for each case how many messages were delivered more than
    once before their tasks had ended.

    Args:
        timeout: The visibility timeout, in seconds.
    """
    starting = threading.Semaphore(STARTING)
    with ThreadPoolExecutor(max_workers=rounds * len(cases)) as threads:
        jobs = [
            {case: threads.submit(_run, stage, case, timeout, starting) for case in cases}
            for _ in range(rounds)
        ]
        counts = [{case: job.result() for case, job in each.items()} for each in jobs]
    stage.end_workers()
    return counts


def _run(stage: Stage, case: Case, timeout: int, starting: threading.Semaphore) -> int:
    """Return how many messages were delivered more than once. Another consumer receives them."""
    with starting:
        scene = stage.scene(timeout)
        # It has no room for more, so it does not receive again what it runs.
        conf = {"imports": [MODULE], "worker_prefetch_multiplier": 1}
        scene.worker("-c", str(case.tasks), "-P", case.pool, flag=case.ours, conf=conf)
        kinds = ["block" if case.blocks else "wait"] + ["wait"] * (case.tasks - 1)
        for number, kind in enumerate(kinds):
            remedy = 0 if case.ours else timeout
            scene.send(kind, str(number), TIMEOUTS * timeout, remedy)
        scene.wait_for_notes("start", case.tasks)
    if case.ours:
        # By then its keeper has started, even on a busy machine.
        wait_for_extensions(scene, 1, since=0.0, messages=case.tasks)
    with taking_over(scene):
        scene.let_end("0")
        scene.wait_for_notes("end", case.tasks)
    return sum(count > 1 for count in Counter(receives(scene)).values())
