"""Stale calls, by a handle that a redelivery has replaced: SQS may still execute them."""

from __future__ import annotations

import math

import pytest

from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.unit.book_harness import TERMS, BookHarness, summary

#: The queue's visibility timeout was raised from 30 s to this.
LONG = LeaseTerms(visibility_timeout=120, threshold=40)


def overtaken(booking: BookHarness, *, hidden_for: int = 120) -> Call:
    """Receive a message again while an extension by 30 s is under way; return that call."""
    booking.receive("m", handle="old")
    booking.now += 20
    call = booking.one_call()
    booking.now += 11
    assert booking.receive("m", handle="new", hidden_for=hidden_for) is ReceivedAs.REDELIVERED
    return call


def test_a_lease_counts_for_no_longer_than_an_older_extension_may_leave() -> None:
    booking = BookHarness()
    overtaken(booking)
    lease = booking.lease("new")
    assert lease.expires_at == booking.now + 30
    assert lease.hidden_until == booking.now + 120
    # Not 10 s before its end, as in its terms, but a third of the time that it counts for.
    assert lease.extend_at == booking.now + 20


def test_an_extension_that_may_be_overtaken_counts_for_no_longer_either() -> None:
    booking = BookHarness()
    booking.apply_results(overtaken(booking), Outcome.UNKNOWN)
    booking.now += 20
    call = booking.one_call()
    ((_, _, timeout),) = summary(call)
    assert timeout == 101
    planned_at = booking.now
    booking.now += 0.5
    booking.apply_results(call, Outcome.DONE)
    lease = booking.lease("new")
    assert lease.expires_at == planned_at + 30
    assert lease.extend_at == planned_at + 20


def test_once_the_older_call_is_answered_an_extension_counts_in_full() -> None:
    booking = BookHarness()
    booking.apply_results(overtaken(booking), Outcome.DONE)
    booking.now += 20
    planned_at = booking.now
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert booking.lease("new").expires_at == planned_at + 101


def test_an_extension_sent_before_the_older_call_was_answered_counts_in_part() -> None:
    booking = BookHarness()
    first = overtaken(booking)
    booking.book.give_up(booking.now, lambda call: True)
    booking.now += 20
    second, planned_at = booking.one_call(), booking.now
    booking.apply_results(first, Outcome.DONE)
    booking.apply_results(second, Outcome.DONE)
    assert booking.lease("new").expires_at == planned_at + 30


def test_a_receive_that_was_under_way_when_the_older_call_was_answered_counts_in_part() -> None:
    booking = BookHarness()
    booking.receive("m", handle="old")
    booking.now += 20
    call = booking.one_call()
    booking.now += 1
    booking.apply_results(call, Outcome.DONE)
    booking.now += 1
    booking.receive("m", handle="new", hidden_for=120, poll=2)
    assert booking.lease("new").expires_at == booking.now - 2 + 30


@pytest.mark.parametrize("outcome", [Outcome.THROTTLED, Outcome.FAILED, Outcome.DENIED])
def test_a_lease_counts_in_full_if_the_older_call_had_no_effect(outcome: Outcome) -> None:
    booking = BookHarness()
    booking.receive("m", handle="old")
    booking.now += 20
    call = booking.one_call()
    booking.now += 1
    booking.apply_results(call, outcome)
    booking.now += 1
    booking.receive("m", handle="new", hidden_for=120, poll=2)
    assert booking.lease("new").expires_at == booking.now - 2 + 120


@pytest.mark.parametrize("hidden_for", [30, 20])
def test_an_older_extension_by_as_much_costs_nothing(hidden_for: int) -> None:
    booking = BookHarness()
    overtaken(booking, hidden_for=hidden_for)
    lease = booking.lease("new")
    assert lease.expires_at == booking.now + hidden_for
    assert lease.extend_at == booking.now + hidden_for - TERMS.threshold


def test_a_lease_that_begins_again_remembers_the_calls_of_the_last_one() -> None:
    booking = BookHarness()
    booking.receive("m", handle="old")
    booking.now += 20
    booking.plan()
    booking.book.let_expire("old", booking.now)
    booking.now += 11
    assert booking.receive("m", handle="new", terms=LONG) is ReceivedAs.NEW
    assert booking.lease("new").expires_at == booking.now + 30


def release_unanswered(booking: BookHarness) -> None:
    booking.receive("m", handle="old")
    booking.book.release("old", 0, booking.now)
    booking.plan()


def test_a_message_is_not_run_while_a_release_may_end_its_lease() -> None:
    booking = BookHarness()
    release_unanswered(booking)
    booking.now += 31
    assert booking.receive("m", handle="new") is ReceivedAs.RELEASED
    assert booking.book.get("new") is None


def test_a_release_that_is_never_answered_spares_its_message_once() -> None:
    booking = BookHarness()
    release_unanswered(booking)
    booking.now += 31
    booking.receive("m", handle="new")
    booking.now += 30
    assert booking.receive("m", handle="newer") is ReceivedAs.NEW
    assert not booking.lease("newer").is_exclusive


def test_a_message_received_before_its_lease_expired_must_have_been_released() -> None:
    booking = BookHarness()
    release_unanswered(booking)
    booking.now += 1
    assert booking.receive("m", handle="new") is ReceivedAs.NEW
    lease = booking.lease("new")
    assert lease.is_exclusive
    assert lease.limit == math.inf


@pytest.mark.parametrize("answer", [Outcome.FAILED, Outcome.UNSURE])
def test_a_release_that_sqs_has_answered_changes_nothing(answer: Outcome) -> None:
    booking = BookHarness()
    booking.receive("m", handle="old")
    booking.book.release("old", 0, booking.now)
    booking.apply_results(booking.one_call(), answer)
    booking.now += 31
    booking.plan()
    assert booking.receive("m", handle="new") is ReceivedAs.NEW
    assert booking.lease("new").is_exclusive
