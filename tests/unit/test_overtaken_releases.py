"""A message that is received again before its release is confirmed: its lease's end is reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Action
from tests.unit.book_harness import BookHarness

K = EventKind


def release_under_way(booking: BookHarness) -> None:
    booking.book.release("m#1", 0, booking.now, cause="failed")
    booking.one_call()


def release_not_sent_yet(booking: BookHarness) -> None:
    booking.book.release("m#1", 0, booking.now, cause="failed")


def release_behind_an_extension(booking: BookHarness) -> None:
    booking.now += 21
    booking.one_call()
    booking.book.release("m#1", 0, booking.now, cause="failed")


def release_under_way_as_the_lease_ran_out(booking: BookHarness) -> None:
    booking.now += 29
    release_under_way(booking)
    booking.now += 2


@pytest.mark.parametrize(
    ("before", "kind", "action", "outcome"),
    [
        (release_under_way, K.MESSAGE_RELEASED, Action.RELEASE, Outcome.DONE),
        (release_not_sent_yet, K.MESSAGE_LAPSING, None, None),
        (release_behind_an_extension, K.MESSAGE_LAPSING, None, None),
    ],
)
def test_the_end_is_reported_before_the_next_receive(
    before: Callable[[BookHarness], None],
    kind: EventKind,
    action: Action | None,
    outcome: Outcome | None,
) -> None:
    booking = BookHarness()
    booking.receive("m", handle="m#1")
    before(booking)
    booking.now += 0.1
    booking.receive("m", handle="m#2", count=2)
    received, *_, ended, again = [*booking.events, *booking.book.take_events()]
    assert (received.receive_count, again.receive_count) == (1, 2)
    assert again.kind is received.kind is K.MESSAGE_RECEIVED
    assert (ended.kind, ended.receipt_handle, ended.receive_count) == (kind, "m#1", 1)
    assert (ended.action, ended.outcome, ended.cause) == (action, outcome, "failed")


def test_a_release_that_is_confirmed_after_its_redelivery_is_reported_once() -> None:
    booking = BookHarness()
    booking.receive("m", handle="m#1")
    booking.book.release("m#1", 0, booking.now)
    call = booking.one_call()
    booking.receive("m", handle="m#2", count=2)
    booking.apply_results(call, Outcome.DONE)
    assert booking.kinds() == [K.MESSAGE_RELEASED]


def test_a_release_whose_lease_expired_on_the_way_may_have_had_no_effect() -> None:
    booking = BookHarness()
    booking.receive("m", handle="m#1")
    release_under_way_as_the_lease_ran_out(booking)
    booking.receive("m", handle="m#2", count=2)
    booking.receive("m", handle="m#3", count=3)
    events = booking.book.take_events()
    ended = [event for event in events if event.kind is K.MESSAGE_LAPSING]
    assert [(each.receipt_handle, each.outcome) for each in ended] == [("m#1", Outcome.UNKNOWN)]
