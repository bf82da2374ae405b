"""What a worker knows about the polls of each queue."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.observe.watched import PolledQueue, PolledQueues
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
    assert only(polled) == PolledQueue(
        queue="orders", last_answered_age=5.0, unanswered=0, deaf=False
    )
    polled.answered("o")
    clock.advance(3)
    assert only(polled).last_answered_age == 3.0


def fail(polled: PolledQueues, clock: FakeClock, times: int, seconds: float) -> None:
    """Have polls fail, each so many seconds after it was sent."""
    for _ in range(times):
        sent_at = clock()
        clock.advance(seconds)
        polled.unanswered("o", sent_at)


@pytest.mark.parametrize(
    ("times", "seconds", "is_deaf"),
    [(59, 1, False), (60, 1, True), (2, 29, False), (2, 30, True), (1, 61, False)],
)
def test_a_queue_is_deaf_if_its_polls_failed_for_a_minute_and_more_than_one_until_the_next_answer(
    clock: FakeClock, polled: PolledQueues, times: int, seconds: float, is_deaf: bool
) -> None:
    fail(polled, clock, 1, 100)
    polled.answered("o")
    fail(polled, clock, times, seconds)
    assert only(polled).deaf is is_deaf
    polled.answered("o")
    assert not only(polled).deaf
    assert only(polled).unanswered == 1 + times


def test_a_queue_of_an_ending_worker_has_no_age_and_is_not_deaf(
    clock: FakeClock, polled: PolledQueues
) -> None:
    fail(polled, clock, 2, 30)
    polled.rest_all()
    assert only(polled) == PolledQueue(
        queue="orders", last_answered_age=None, unanswered=2, deaf=False
    )


def test_a_queue_that_is_consumed_from_again_after_a_lost_connection_is_deaf_until_an_answer(
    clock: FakeClock, polled: PolledQueues
) -> None:
    fail(polled, clock, 2, 30)
    polled.rest("o")
    polled.asked("o", URL)
    assert only(polled) == PolledQueue(
        queue="orders", last_answered_age=60.0, unanswered=2, deaf=True
    )
    polled.answered("o")
    polled.rest("o")
    clock.advance(5)
    assert only(polled).last_answered_age is None
    polled.asked("o", URL)
    assert only(polled) == PolledQueue(
        queue="orders", last_answered_age=0.0, unanswered=2, deaf=False
    )


def test_time_alone_makes_no_queue_deaf(clock: FakeClock, polled: PolledQueues) -> None:
    fail(polled, clock, 2, 1)
    clock.advance(3600)
    assert not only(polled).deaf


def test_a_queue_that_waits_for_room_is_not_deaf_and_deaf_again_after_one_more_poll(
    clock: FakeClock, polled: PolledQueues
) -> None:
    fail(polled, clock, 2, 30)
    polled.wait("o")
    clock.advance(3600)
    assert not only(polled).deaf
    # Nor does sending the next poll change that.
    polled.asked("o", URL)
    assert not only(polled).deaf
    fail(polled, clock, 1, 1)
    assert only(polled).deaf
    assert only(polled).unanswered == 3


def test_a_queue_that_waits_for_room_before_its_first_poll_is_not_known(
    polled: PolledQueues,
) -> None:
    polled.wait("other")
    assert only(polled).queue == "orders"
