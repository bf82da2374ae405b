"""What a worker knows about the polls of each queue."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.observe.polled import PolledQueue, PolledQueues
from celery_sqs_heartbeat.testing import FakeClock

URL = "https://sqs/1/orders"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def polled(clock: FakeClock) -> PolledQueues:
    polled = PolledQueues(clock)
    polled.asked("o", URL)
    return polled


def only(polled: PolledQueues) -> PolledQueue:
    (queue,) = polled.view()
    return queue


def test_the_age_counts_from_the_last_answer_and_before_it_from_the_first_poll(
    clock: FakeClock, polled: PolledQueues
) -> None:
    clock.advance(5)
    polled.asked("o", URL)
    assert only(polled) == PolledQueue(queue="orders", age=5.0, unanswered=0, is_deaf=False)
    polled.answered("o")
    clock.advance(3)
    assert only(polled).age == 3.0


def test_a_queue_is_deaf_from_the_second_unanswered_poll_in_a_row_to_the_next_answer(
    polled: PolledQueues,
) -> None:
    polled.unanswered("o")
    polled.answered("o")
    polled.unanswered("o")
    assert not only(polled).is_deaf
    polled.unanswered("o")
    assert only(polled).is_deaf
    polled.answered("o")
    assert not only(polled).is_deaf
    assert only(polled).unanswered == 3


def test_a_queue_that_is_not_consumed_from_any_more_has_no_age_and_is_not_deaf(
    polled: PolledQueues,
) -> None:
    polled.unanswered("o")
    polled.unanswered("o")
    polled.rest_all()
    assert only(polled) == PolledQueue(queue="orders", age=None, unanswered=2, is_deaf=False)


def test_time_alone_makes_no_queue_deaf(clock: FakeClock, polled: PolledQueues) -> None:
    clock.advance(3600)
    assert not only(polled).is_deaf


def test_a_queue_that_waits_for_room_is_not_deaf_and_deaf_again_after_one_more_poll(
    clock: FakeClock, polled: PolledQueues
) -> None:
    polled.unanswered("o")
    polled.unanswered("o")
    polled.wait("o")
    clock.advance(3600)
    assert not only(polled).is_deaf
    # Nor does sending the next poll change that.
    polled.asked("o", URL)
    assert not only(polled).is_deaf
    polled.unanswered("o")
    assert only(polled).is_deaf
    assert only(polled).unanswered == 3


def test_a_queue_that_waits_for_room_before_its_first_poll_is_not_known(
    polled: PolledQueues,
) -> None:
    polled.wait("other")
    assert only(polled).queue == "orders"
