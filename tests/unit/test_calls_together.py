"""Full calls that are due soon are made together with one that is due now."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.agenda import TOGETHER_SECONDS
from celery_sqs_heartbeat.leases.calls import Outcome
from tests.unit.book_harness import TERMS, BookHarness

FIRST_DUE = TERMS.visibility_timeout - TERMS.threshold


def received(messages: int, *, within: float) -> BookHarness:
    """Receive messages one after another, until the first one's extension is due."""
    booking = BookHarness()
    begun = booking.now
    for number in range(messages):
        booking.now = begun + number * within / messages
        booking.receive(f"m{number}")
    booking.now = begun + FIRST_DUE
    return booking


def sizes(booking: BookHarness, room: int = 16) -> list[int]:
    return [len(call.entries) for call in booking.plan(room)]


def test_full_calls_that_are_due_soon_are_made_at_once() -> None:
    booking = received(30, within=TOGETHER_SECONDS)
    calls = booking.plan()
    handles = [entry.receipt_handle for call in calls for entry in call.entries]
    assert handles == [f"m{number}" for number in range(30)]
    assert [len(call.entries) for call in calls] == [10, 10, 10]
    for call in calls:
        booking.apply_results(call, Outcome.DONE)
    assert booking.lease("m29").expires_at == booking.now + TERMS.visibility_timeout


@pytest.mark.parametrize(
    ("messages", "within", "room", "expected"),
    [
        # Never more than four calls for a queue.
        (100, TOGETHER_SECONDS, 16, [10, 10, 10, 10]),
        (100, TOGETHER_SECONDS, 2, [10, 10]),
        # The rest would not fill a call.
        (15, TOGETHER_SECONDS, 16, [10]),
        # The eleventh message is due later.
        (30, 3.1 * TOGETHER_SECONDS, 16, [10]),
    ],
)
def test_no_more_calls_are_made_early(
    messages: int, within: float, room: int, expected: list[int]
) -> None:
    assert sizes(received(messages, within=within), room) == expected


def test_leases_that_would_not_fill_a_call_are_extended_when_they_are_due() -> None:
    booking = received(15, within=TOGETHER_SECONDS)
    assert sizes(booking) == [10]
    assert booking.book.agenda.next_due(booking.now) == booking.lease("m10").extend_at
    booking.now = booking.lease("m10").extend_at
    assert sizes(booking) == [5]


def test_a_retry_is_not_made_early() -> None:
    booking = received(11, within=0.0)
    for call in booking.plan():
        booking.apply_results(call, Outcome.FAILED)
    booking.now += 0.01
    for number in range(20):
        booking.receive(f"new{number}", hidden_for=TERMS.threshold)
    (first, second) = booking.plan()
    entries = [*first.entries, *second.entries]
    assert {entry.receipt_handle[:3] for entry in entries} == {"new"}
