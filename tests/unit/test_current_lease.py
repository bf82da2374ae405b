"""What a task learns of its lease, why it may have none, and the delay that it requests."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from celery_sqs_heartbeat import LeaseLost, NoLease, SqsHeartbeatError, current_lease
from celery_sqs_heartbeat.current import sharing
from celery_sqs_heartbeat.current.current_message import (
    ask_for_retry,
    asked_delay,
    asked_retry,
    read_delay,
    write_delay,
)
from celery_sqs_heartbeat.current.sharing import shared_table, unshare_table
from celery_sqs_heartbeat.current.table import REACH, SLOT_BYTES, key_of
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseTerms
from tests.support.leases import TERMS, lease_of, share_board
from tests.support.tasks import app, run_in_task, sqs_message
from tests.unit.asking import MESSAGE, NOW, Worker, why_not

QUESTIONS: dict[str, Callable[[], Any]] = {
    "message_id": lambda: current_lease.message_id,
    "receive_count": lambda: current_lease.receive_count,
    "group": lambda: current_lease.group,
    "sequence_number": lambda: current_lease.sequence_number,
    "remaining": lambda: current_lease.remaining(),
    "ensure_valid": lambda: current_lease.ensure_valid(),
}
REMAINING = QUESTIONS["remaining"]


def test_a_task_knows_its_message_and_how_its_lease_counts_down_and_grows(
    worker: Worker, at: Callable[[float], None]
) -> None:
    names = ("message_id", "receive_count", "remaining")
    assert [worker.run(QUESTIONS[name]) for name in names] == ["the-message", 3, 20]
    assert worker.run(lambda: bool(current_lease)) is True
    assert worker.run(lambda: repr(current_lease)) == (
        "<current_lease: message the-message, 20 s left>"
    )
    assert "no worker runs a task here" in repr(current_lease)
    at(NOW + 15)
    assert worker.remaining() == 5
    worker.change(expires_at=NOW + 45)
    assert worker.remaining() == 30
    uncounted = {"MessageId": "m", "ReceiptHandle": "a"}
    assert worker.run(QUESTIONS["receive_count"], uncounted) == 1


@pytest.mark.parametrize(
    ("left", "asked", "is_enough"),
    [
        (5, [], True),
        (4.9, [], False),
        (20, [20.5], False),
        (0.1, [0], True),
        (0, [0], False),
    ],
)
def test_a_lease_is_valid_if_it_has_the_requested_time_left(
    worker: Worker, left: float, asked: list[float], *, is_enough: bool
) -> None:
    worker.change(expires_at=NOW + left)
    if is_enough:
        worker.ensure_valid(*asked)
    else:
        with pytest.raises(LeaseLost) as raised:
            worker.ensure_valid(*asked)
        assert raised.value.message_id == "the-message"
        assert raised.value.remaining == pytest.approx(max(0, left))


@pytest.mark.parametrize(
    ("changes", "asked", "left", "reason"),
    [
        ({"status": LeaseStatus.LOST}, 21, 0, "SQS says that it is no longer ours"),
        ({"goal": Goal.RELEASE}, 21, 0, "the worker has released or dropped it"),
        ({"status": LeaseStatus.CAPPED}, 21, 20, "has reached max_lease or SQS's 12 hours"),
        ({"status": LeaseStatus.REFUSED}, 21, 20, "sqs:ChangeMessageVisibility is missing"),
        ({"status": LeaseStatus.EXPIRED, "expires_at": NOW - 1}, 21, 0, "its lease has expired"),
        ({"expires_at": NOW - 1}, 21, 0, "no extension of it was confirmed in time"),
        ({"expires_at": NOW + 2}, 5, 2, "no extension of it was confirmed in time"),
        ({}, 21, 20, "a visibility timeout of 30 s, as little as 10 s may be left before an ext"),
        (
            {"expires_at": NOW + 2, "terms": LeaseTerms.of(4)},
            5,
            2,
            "2 s of its lease are left, 5 s are required; with a visibility timeout of 4 s, as "
            "little as 1.33 s may be left before an extension: require less than that, or give "
            "the queue a longer visibility timeout",
        ),
    ],
)
def test_the_error_says_why_the_lease_is_not_valid(
    worker: Worker, changes: dict[str, Any], asked: float, left: float, reason: str
) -> None:
    worker.change(**changes)
    with pytest.raises(LeaseLost) as raised:
        worker.ensure_valid(asked)
    assert str(raised.value).startswith("message the-message: ")
    assert reason in str(raised.value)
    assert raised.value.remaining == worker.remaining() == left
    # There is a lease, and a task that asks only now must not continue without it.
    assert worker.run(lambda: bool(current_lease)) is True
    # The error leaves a pool process unchanged.
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.message_id, copy.remaining) == (str(raised.value), "the-message", left)


def test_a_lost_claim_stays_lost_when_the_same_message_is_claimed_again(worker: Worker) -> None:
    worker.board.remove(worker.lease)
    with pytest.raises(LeaseLost, match="has released or dropped it"):
        worker.ensure_valid(0)
    again = sqs_message("b", message_id="the-message", receive_count=4)
    worker.board.show(lease_of("b", expires_at=NOW + 30))
    assert worker.remaining() == 0
    assert worker.run(REMAINING, again) == 30


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        *((asked, TypeError) for asked in ("5", None, True, [5], 1j)),
        *((asked, ValueError) for asked in (-1, -0.1, math.inf, math.nan)),
    ],
)
def test_the_requested_time_must_be_a_finite_number(
    worker: Worker, asked: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"min_remaining is .*: give it as seconds"):
        worker.ensure_valid(asked)


@pytest.mark.parametrize(
    ("attributes", "group", "number"),
    [
        ({}, None, None),
        ({"MessageGroupId": "A17", "SequenceNumber": "0188"}, "A17", "0188"),
        ({"MessageGroupId": "", "SequenceNumber": ""}, None, None),
        ({"MessageGroupId": 17, "SequenceNumber": 188}, None, None),
        ({"SequenceNumber": "\u0661\u00b2"}, None, None),
        (None, None, None),
    ],
)
def test_a_task_knows_its_messages_place_in_a_group(
    worker: Worker, attributes: Any, group: str | None, number: str | None
) -> None:
    message = {**sqs_message("a"), "Attributes": attributes}
    known = worker.run(lambda: (current_lease.group, current_lease.sequence_number), message)
    assert known == (group, number)


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
    assert str(pickle.loads(pickle.dumps(NoLease("x")))) == str(NoLease("x"))


def test_the_error_says_why_there_is_none(worker: Worker) -> None:
    assert "no worker runs a task here" in why_not(REMAINING)
    assert "did not come from SQS" in why_not(lambda: worker.run(REMAINING, None))
    assert "acks_late=False" in why_not(lambda: worker.run(REMAINING, acks_late=False))
    worker.change(goal=Goal.DELETE)
    assert "acknowledged already" in why_not(lambda: worker.run(REMAINING))
    worker.change(goal=Goal.HOLD, terms=replace(TERMS, extend=False))
    assert "sqs_heartbeat=False" in why_not(lambda: worker.run(REMAINING))
    assert worker.run(lambda: bool(current_lease)) is False
    unshare_table()
    assert "without --heartbeat-sqs" in why_not(lambda: worker.run(REMAINING))


@pytest.mark.usefixtures("at")
def test_a_lease_that_a_full_table_has_no_room_for_is_not_called_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "LEAST_PLACES", REACH)
    board = share_board(1)
    for number in range(REACH + 1):
        board.show(lease_of(f"handle-{number}", expires_at=NOW + 1))
    first, last = sqs_message("handle-0"), sqs_message(f"handle-{REACH}")
    assert run_in_task(REMAINING, first) == 1
    assert "has room for" in why_not(lambda: run_in_task(REMAINING, last))
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
    eager = Celery("eager", set_as_current=False, task_always_eager=True)
    ask = eager.task(name="ask", acks_late=True, shared=False)(_has_lease)
    assert ask.delay().get() is False


def _has_lease() -> bool:
    return bool(current_lease)


def ask(worker: Worker, delay: Any) -> None:
    def run() -> None:
        current_lease.release_delay = delay

    worker.run(run)


def test_a_task_and_its_worker_read_the_delay_that_the_task_has_set(worker: Worker) -> None:
    assert worker.run(lambda: current_lease.release_delay) is None
    assert asked_delay("a") is None
    for delay in (90, 0.5, 0, 10**6):
        ask(worker, delay)
        assert worker.run(lambda: current_lease.release_delay) == delay
        assert asked_delay("a") == delay
    # Changes of the lease do not change it.
    worker.change(expires_at=5_000)
    assert asked_delay("a") == 10**6
    assert worker.run(lambda: current_lease.remaining()) > 20
    ask(worker, None)
    assert worker.run(lambda: current_lease.release_delay) is None
    assert asked_delay("a") is None


def test_a_task_may_request_both_a_retry_and_a_delay(worker: Worker) -> None:
    assert asked_retry("a") is None
    ask(worker, 90)
    assert ask_for_retry("a", 1_000)
    assert asked_delay("a") == 90
    ask(worker, 50)
    retry = asked_retry("a")
    assert retry is not None
    assert 900 < retry <= 1_000
    assert ask_for_retry("a", -5)
    assert asked_retry("a") == 0
    assert asked_delay("a") == 50


def test_a_retry_without_a_place_in_the_table_does_not_count_as_noted(worker: Worker) -> None:
    assert not ask_for_retry("unknown", 5)
    assert asked_retry("unknown") is None
    unshare_table()
    assert not ask_for_retry("a", 5)
    assert asked_retry("a") is None


def test_without_a_lease_no_delay_can_be_set(worker: Worker) -> None:
    def set_it() -> None:
        current_lease.release_delay = 90

    assert "no worker runs a task here" in why_not(set_it)
    assert "no worker runs a task here" in why_not(lambda: current_lease.release_delay)
    with pytest.raises(NoLease, match="acks_late=False"):
        worker.run(set_it, acks_late=False)
    unshare_table()
    assert asked_delay("a") is None


def test_a_message_does_not_inherit_the_delay_of_the_previous_one_in_its_place(
    worker: Worker,
) -> None:
    ask(worker, 90)
    table = shared_table()
    place = table.place_of(key_of("a"))
    assert place is not None
    record = table.read(key_of("a"))
    table.write(place, key_of("b"), record)
    assert read_delay(table, "b") is None
    # Nor is anything written for a message that no longer has a place.
    write_delay(table, "a", 5)
    assert read_delay(table, "b") is None


@pytest.mark.parametrize("at", range(SLOT_BYTES))
def test_a_delay_that_a_killed_task_wrote_halfway_does_not_count(worker: Worker, at: int) -> None:
    ask(worker, 90)
    table = shared_table()
    place = table.place_of(key_of("a"))
    assert place is not None
    before = table.slot(place)
    ask(worker, 1e300)
    whole = table.slot(place)
    torn = whole[:at] + before[at:]
    table.write_slot(place, torn)
    assert asked_delay("a") in ((90, None) if torn != whole else (1e300,))
