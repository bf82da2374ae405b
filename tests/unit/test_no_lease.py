"""What a task learns if it has no lease, and which lease it gets if there are several."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from celery_sqs_heartbeat import LeaseLost, NoLease, SqsHeartbeatError, current_lease
from celery_sqs_heartbeat.current import sharing
from celery_sqs_heartbeat.current.sharing import unshare_table
from celery_sqs_heartbeat.current.table import REACH
from celery_sqs_heartbeat.leases.lease import Goal
from tests.support.leases import TERMS, lease_of
from tests.support.seated import share_board
from tests.support.tasks import app, run_in_task, sqs_message
from tests.support.waiting import PATIENCE
from tests.unit.asking import MESSAGE, NOW, Worker, why_not

QUESTIONS: dict[str, Callable[[], Any]] = {
    "message_id": lambda: current_lease.message_id,
    "receive_count": lambda: current_lease.receive_count,
    "group": lambda: current_lease.group,
    "sequence_number": lambda: current_lease.sequence_number,
    "remaining": lambda: current_lease.remaining(),
    "ensure_valid": lambda: current_lease.ensure_valid(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_without_a_lease_every_question_reports_that(question: str) -> None:
    ask = QUESTIONS[question]
    for reason in (
        why_not(ask),
        why_not(lambda: run_in_task(ask, None)),
        why_not(lambda: run_in_task(ask, MESSAGE)),
    ):
        assert reason.startswith("there is no lease here: ")
        assert reason.endswith(" (check with `if current_lease:`)")
    assert issubclass(NoLease, SqsHeartbeatError)
    assert not issubclass(NoLease, LeaseLost)
    assert not issubclass(LeaseLost, NoLease)


def test_the_error_says_why_there_is_none(worker: Worker) -> None:
    ask = current_lease.remaining
    assert "no worker runs a task here" in why_not(ask)
    assert "did not come from SQS" in why_not(lambda: worker.run(ask, None))
    assert "acks_late=False" in why_not(lambda: worker.run(ask, acks_late=False))
    worker.change(goal=Goal.DELETE)
    assert "acknowledged already" in why_not(lambda: worker.run(ask))
    worker.change(goal=Goal.HOLD, terms=replace(TERMS, extend=False))
    assert "sqs_heartbeat=False" in why_not(lambda: worker.run(ask))
    assert worker.run(lambda: bool(current_lease)) is False
    unshare_table()
    assert "without --heartbeat-sqs" in why_not(lambda: worker.run(ask))


@pytest.mark.usefixtures("at")
def test_a_lease_that_a_full_table_has_no_room_for_is_not_called_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "LEAST_PLACES", REACH)
    board = share_board(1)
    for number in range(REACH + 1):
        board.show(lease_of(f"handle-{number}", expires_at=NOW + 1))
    first, last = sqs_message("handle-0"), sqs_message(f"handle-{REACH}")
    assert run_in_task(lambda: current_lease.remaining(), first) == 1
    assert "has room for" in why_not(lambda: run_in_task(lambda: current_lease.remaining(), last))
    assert run_in_task(lambda: bool(current_lease), last) is False
    unshare_table()


def test_a_task_that_is_called_by_another_runs_under_its_lease(worker: Worker) -> None:
    @app.task(name="inner")
    def inner() -> float:
        return current_lease.remaining()

    try:
        assert worker.run(lambda: inner()) == 20
        assert worker.run(lambda: inner.apply().get(disable_sync_subtasks=False)) == 20
        assert "no worker runs" in why_not(inner)
        assert "no worker runs" in why_not(lambda: inner.apply(throw=True))
    finally:
        del app.tasks["inner"]


def test_an_eager_app_has_no_leases(worker: Worker) -> None:
    eager = Celery("eager", set_as_current=False)
    eager.conf.task_always_eager = True

    @eager.task(name="ask", acks_late=True)
    def ask() -> bool:
        return bool(current_lease)

    assert ask.delay().get() is False


def test_each_thread_has_the_lease_of_its_own_task(worker: Worker) -> None:
    together = threading.Barrier(4, timeout=PATIENCE)
    left: dict[str, float] = {}

    def ask(handle: str) -> None:
        together.wait()
        left[handle] = current_lease.remaining()
        together.wait()

    def run(handle: str) -> None:
        worker.run(lambda: ask(handle), sqs_message(handle))

    threads = []
    for number in range(4):
        worker.board.show(lease_of(f"t{number}", expires_at=NOW + number + 1))
        threads.append(threading.Thread(target=run, args=(f"t{number}",)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left == {"t0": 1, "t1": 2, "t2": 3, "t3": 4}


def test_importing_it_brings_no_aws_client() -> None:
    code = "import sys; from celery_sqs_heartbeat import current_lease; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"boto3", "botocore"} & set(loaded)
