"""Jobs that run beside their caller: as many at once as needed, up to a limit."""

from __future__ import annotations

import threading

import pytest

from celery_sqs_heartbeat.common.threads import CallerThreads
from tests.support.waiting import PATIENCE, wait_until


def test_jobs_run_side_by_side_up_to_the_size() -> None:
    threads = CallerThreads(3, "test")
    together = threading.Barrier(3)
    done: list[int] = []
    running = 0
    most = 0
    lock = threading.Lock()

    def job() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(PATIENCE)
        with lock:
            running -= 1
            done.append(1)

    for _ in range(9):
        threads.submit(job)
    wait_until(lambda: len(done) == 9)
    assert most == 3
    threads.close()


def test_one_thread_does_its_jobs_in_order_though_some_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = CallerThreads(1, "test")
    done: list[int] = []
    for number in range(6):
        threads.submit(lambda number=number: done.append(number) if number != 3 else 1 / 0)
    wait_until(lambda: len(done) == 5)
    assert done == [0, 1, 2, 4, 5]
    assert "a job of thread test failed" in caplog.text
    threads.close()


def test_an_idle_thread_ends_and_another_takes_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("celery_sqs_heartbeat.common.threads.LINGER_SECONDS", 0.01)
    threads = CallerThreads(1, "test-idle")
    seen: list[threading.Thread] = []
    for turn in (1, 2, 3):
        threads.submit(lambda: seen.append(threading.current_thread()))
        wait_until(lambda turn=turn: len(seen) == turn and not seen[-1].is_alive())
    assert len(set(seen)) == 3
    threads.close()


def test_a_closed_one_finishes_its_jobs_and_accepts_no_more() -> None:
    threads = CallerThreads(1, "test")
    may_end = threading.Event()
    done: list[str] = []
    threads.submit(lambda: may_end.wait(PATIENCE) and done.append("first"))
    threads.submit(lambda: done.append("second"))
    threads.close()
    threads.submit(lambda: done.append("late"))
    may_end.set()
    wait_until(lambda: len(done) == 2)
    assert done == ["first", "second"]
