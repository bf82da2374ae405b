"""What a task learns about its own lease."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from celery_sqs_heartbeat import LeaseLost, NoLease, current_lease
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseTerms
from tests.support.leases import lease_of
from tests.support.tasks import sqs_message
from tests.unit.asking import NOW, Worker


def test_a_task_knows_its_message(worker: Worker) -> None:
    assert worker.run(lambda: (current_lease.message_id, current_lease.receive_count)) == (
        "the-message",
        3,
    )
    assert worker.run(lambda: bool(current_lease)) is True


def test_the_remaining_time_counts_down_and_grows_with_an_extension(
    worker: Worker, at: Callable[[float], None]
) -> None:
    assert worker.remaining() == 20
    at(NOW + 15)
    assert worker.remaining() == 5
    worker.change(expires_at=NOW + 45)
    assert worker.remaining() == 30


def test_a_lease_has_a_readable_repr(worker: Worker) -> None:
    shown = worker.run(lambda: repr(current_lease))
    assert shown == "<current_lease: message the-message, 20 s left>"
    assert "no worker runs a task here" in repr(current_lease)


@pytest.mark.parametrize(
    ("left", "asked", "is_enough"),
    [
        (20, [], True),
        (5, [], True),
        (4.9, [], False),
        (20, [20], True),
        (20, [20.5], False),
        (0.1, [0], True),
        (0, [0], False),
        (-1, [0], False),
    ],
)
def test_a_lease_is_valid_if_it_has_the_requested_time_left(
    worker: Worker, left: float, asked: list[float], is_enough: bool
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
    ("changes", "left", "reason"),
    [
        ({"status": LeaseStatus.LOST}, 0, "SQS says that it is no longer ours"),
        ({"goal": Goal.RELEASE}, 0, "the worker has released or dropped it"),
        ({"status": LeaseStatus.CAPPED}, 20, "20 s of its lease are left, 21 s are required; it "),
        ({"status": LeaseStatus.CAPPED}, 20, "has reached max_lease or SQS's 12 hours"),
        ({"status": LeaseStatus.REFUSED}, 20, "sqs:ChangeMessageVisibility is missing"),
        ({"status": LeaseStatus.EXPIRED, "expires_at": NOW - 1}, 0, "its lease has expired, 21 s "),
        ({"expires_at": NOW - 1}, 0, "no extension of it was confirmed in time"),
        ({}, 20, "a visibility timeout of 30 s, as little as 10 s may be left before an extension"),
    ],
)
def test_the_error_says_why_the_lease_is_not_valid(
    worker: Worker, changes: dict[str, Any], left: float, reason: str
) -> None:
    worker.change(**changes)
    with pytest.raises(LeaseLost) as raised:
        worker.ensure_valid(21)
    assert str(raised.value).startswith("message the-message: ")
    assert reason in str(raised.value)
    assert raised.value.remaining == worker.remaining() == left
    # There is a lease, and a task that asks only now must not continue without it.
    assert worker.run(lambda: bool(current_lease)) is True


def test_the_error_names_a_visibility_timeout_that_is_too_short(worker: Worker) -> None:
    worker.change(expires_at=NOW + 2, terms=LeaseTerms.of(4))
    with pytest.raises(LeaseLost) as raised:
        worker.ensure_valid()
    assert str(raised.value) == (
        "message the-message: 2 s of its lease are left, 5 s are required; with a visibility "
        "timeout of 4 s, as little as 1.33 s may be left before an extension: require less than "
        "that, or give the queue a longer visibility timeout"
    )


def test_an_extension_that_is_late_is_not_blamed_on_the_visibility_timeout(worker: Worker) -> None:
    worker.change(expires_at=NOW + 2)
    with pytest.raises(LeaseLost, match="no extension of it was confirmed in time"):
        worker.ensure_valid()


def test_a_lease_that_the_book_has_forgotten_is_lost(worker: Worker) -> None:
    worker.board.remove(worker.lease)
    assert worker.remaining() == 0
    with pytest.raises(LeaseLost, match="has released or dropped it"):
        worker.ensure_valid(0)


def test_a_lost_claim_stays_lost_when_the_same_message_is_claimed_again(worker: Worker) -> None:
    worker.board.remove(worker.lease)
    again = sqs_message("b", message_id="the-message", receive_count=4)
    worker.board.show(lease_of("b", expires_at=NOW + 30))
    assert worker.remaining() == 0
    assert worker.run(lambda: current_lease.remaining(), again) == 30


@pytest.mark.parametrize("asked", ["5", None, True, [5], 1j])
def test_the_requested_time_must_be_a_number(worker: Worker, asked: Any) -> None:
    with pytest.raises(TypeError, match=r"min_remaining is .*: give it as seconds"):
        worker.ensure_valid(asked)


@pytest.mark.parametrize("asked", [-1, -0.1, math.inf, math.nan])
def test_the_requested_time_must_be_finite_and_not_negative(worker: Worker, asked: float) -> None:
    with pytest.raises(ValueError, match=r"min_remaining is .*: give it as seconds, 0 or more"):
        worker.ensure_valid(asked)


def test_the_error_leaves_a_pool_process_unchanged(worker: Worker) -> None:
    worker.change(status=LeaseStatus.LOST)
    with pytest.raises(LeaseLost) as raised:
        worker.ensure_valid()
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.message_id, copy.remaining) == (
        str(raised.value),
        "the-message",
        0.0,
    )
    assert str(pickle.loads(pickle.dumps(NoLease("x")))) == str(NoLease("x"))


def test_a_message_without_a_receive_count_counts_as_received_once(worker: Worker) -> None:
    message = {"MessageId": "m", "ReceiptHandle": "a"}
    assert worker.run(lambda: current_lease.receive_count, message) == 1


@pytest.mark.parametrize(
    ("attributes", "group", "number"),
    [
        ({}, None, None),
        ({"MessageGroupId": "A17", "SequenceNumber": "0188"}, "A17", "0188"),
        ({"MessageGroupId": "tenant"}, "tenant", None),
        ({"MessageGroupId": "", "SequenceNumber": ""}, None, None),
        ({"MessageGroupId": 17, "SequenceNumber": 188}, None, None),
        ({"MessageGroupId": None, "SequenceNumber": "1e3"}, None, None),
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
