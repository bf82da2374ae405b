"""The remedy and the table of the benchmark `starvation`."""

from __future__ import annotations

import threading

from benchmarks.starvation.cases import Case
from benchmarks.starvation.part import findings
from benchmarks.starvation.remedy import extended_by_a_thread


def test_the_remedy_extends_again_and_again_until_the_task_ends() -> None:
    calls = threading.Semaphore(0)
    with extended_by_a_thread(calls.release, every=0.001):
        for _ in range(3):
            calls.acquire()
    while calls.acquire(blocking=False):
        pass
    assert not [each for each in threading.enumerate() if each.name.endswith("(keep_extending)")]
    assert not calls.acquire(blocking=False)


def test_each_pool_has_a_row_and_the_ratio_is_the_share_of_messages_delivered_twice() -> None:
    cases = [
        Case(pool, blocks, ours)
        for pool in ("threads", "solo")
        for blocks in (False, True)
        for ours in (False, True)
    ]
    first = {case: case.tasks if case.blocks and not case.ours else 0 for case in cases}
    second = {**first, Case("threads", True, False): 2}
    found = findings([first, second], timeout=4)
    (table,) = found.tables
    assert [list(row) for row in table.rows] == [
        ["threads", "0 of 8", "0 of 8", "6 of 8", "0 of 8"],
        ["solo", "0 of 2", "0 of 2", "2 of 2", "0 of 2"],
    ]
    assert found.ratios == {
        "messages delivered twice, thread for each task, threads": [1.0, 0.5],
        "messages delivered twice, this package, threads": [0.0, 0.0],
        "messages delivered twice, thread for each task, solo": [1.0, 1.0],
        "messages delivered twice, this package, solo": [0.0, 0.0],
    }
