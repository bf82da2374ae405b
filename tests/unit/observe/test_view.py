"""The views of leases in a keeper's snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.observed import QUEUE, Sqs

TERMS = LeaseTerms(visibility_timeout=60, threshold=20)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keeper(clock: FakeClock) -> ThreadKeeper:
    keeper = ThreadKeeper(Sqs(), terms=TERMS, clock=clock)
    attributes = {"MessageGroupId": "A17", "SequenceNumber": "188"}
    message = {"MessageId": "m", "ReceiptHandle": "SECRET", "Attributes": attributes}
    keeper.receive(QUEUE, message, task="shop.pay", task_id="t")
    return keeper


def test_a_snapshot_has_everything_except_the_receipt_handle(
    keeper: ThreadKeeper, clock: FakeClock
) -> None:
    clock.advance(15)
    (view,) = keeper.snapshot()
    assert view._asdict() == {
        "queue_url": QUEUE,
        "message_id": "m",
        "task": "shop.pay",
        "task_id": "t",
        "receive_count": 1,
        "goal": Goal.HOLD,
        "status": LeaseStatus.OWNED,
        "held_for": 15,
        "received_ago": 15,
        "running_for": None,
        "expires_in": 45,
        "visibility_timeout": 60,
        "threshold": 20,
        "ended_for": None,
        "extensions": 0,
        "attempts": 0,
        "group": "A17",
        "sequence_number": "188",
        "is_in_order": False,
    }


def test_only_a_message_that_is_kept_in_order_is_marked_so(clock: FakeClock) -> None:
    keeper = ThreadKeeper(Sqs(), terms=replace(TERMS, in_order=True), clock=clock)
    for name, attributes in (
        ("ordered", {"MessageGroupId": "A17", "SequenceNumber": "188"}),
        ("of a fair queue", {"MessageGroupId": "A17"}),
    ):
        keeper.receive(QUEUE, {"MessageId": name, "ReceiptHandle": name, "Attributes": attributes})
    views = {view.message_id: view.is_in_order for view in keeper.snapshot()}
    assert views == {"ordered": True, "of a fair queue": False}


def test_a_lease_that_must_end_has_the_time_since_the_decision(
    keeper: ThreadKeeper, clock: FakeClock
) -> None:
    keeper.release("SECRET")
    clock.advance(3)
    (view,) = keeper.snapshot()
    assert (view.goal, view.ended_for) == (Goal.RELEASE, 3)


def test_running_time_counts_from_the_start_of_the_task(
    keeper: ThreadKeeper, clock: FakeClock
) -> None:
    clock.advance(5)
    keeper.note_start("SECRET")
    clock.advance(7)
    (view,) = keeper.snapshot()
    assert (view.running_for, view.held_for) == (7, 12)
