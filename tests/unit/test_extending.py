"""Held leases: when they are extended, by which calls, and what the answers mean."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from celery_sqs_heartbeat.leases.calls import CallKind, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.unit.book_harness import QUEUE, TERMS, BookHarness, summary


@pytest.fixture
def booking() -> BookHarness:
    return BookHarness()


def test_a_lease_is_extended_when_less_than_the_threshold_is_left(booking: BookHarness) -> None:
    booking.receive("a")
    assert booking.book.agenda.next_due(booking.now) == 1020.0
    booking.now = 1019.9
    assert booking.plan() == []
    booking.now = 1020.0
    call = booking.one_call()
    assert call.kind is CallKind.CHANGE_VISIBILITY
    assert summary(call) == [("a", "extend", 30)]


def test_expiry_moves_only_on_a_confirmed_success_and_counts_from_before_the_call(
    booking: BookHarness,
) -> None:
    booking.receive("a")
    booking.now = 1020.0
    call = booking.one_call()
    assert booking.lease("a").expires_at == 1030.0
    booking.now = 1023.0
    booking.apply_results(call, Outcome.DONE)
    assert booking.lease("a").expires_at == 1050.0


@pytest.mark.parametrize(
    "outcome", [Outcome.UNKNOWN, Outcome.FAILED, Outcome.THROTTLED, Outcome.DENIED, Outcome.LOST]
)
def test_expiry_does_not_move_on_any_other_answer(booking: BookHarness, outcome: Outcome) -> None:
    booking.receive("a")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), outcome)
    assert booking.lease("a").expires_at == 1030.0


def test_a_call_is_filled_up_with_the_next_most_urgent_leases_of_its_queue(
    booking: BookHarness,
) -> None:
    for number in range(12):
        booking.receive(f"m{number:02}")
        booking.now += 1
    booking.receive("other", queue="https://sqs/1/other")
    booking.now = 1020.0
    (call,) = booking.plan()
    assert [entry.receipt_handle for entry in call.entries] == [f"m{n:02}" for n in range(10)]
    assert {entry.timeout for entry in call.entries} == {30}


def test_leases_received_apart_drift_into_common_batches(booking: BookHarness) -> None:
    for number in range(5):
        booking.receive(f"m{number}")
        booking.now += 3
    calls = 0
    while booking.now < 1600:
        booking.now = max(booking.now, booking.book.agenda.next_due(booking.now))
        for call in booking.plan():
            calls += 1
            booking.apply_results(call, Outcome.DONE)
    assert calls == pytest.approx(600 / 20, abs=2)


def test_leases_that_fill_up_a_call_early_are_never_shortened(booking: BookHarness) -> None:
    long = LeaseTerms(visibility_timeout=300, threshold=10)
    booking.receive("short")
    booking.receive("long", terms=long)
    booking.receive("brief", terms=LeaseTerms(visibility_timeout=5, threshold=1), hidden_for=300)
    booking.now = 1020.0
    call = booking.one_call()
    assert summary(call) == [("short", "extend", 30), ("long", "extend", 300)]


def test_more_than_ten_due_leases_make_several_calls_most_urgent_first(
    booking: BookHarness,
) -> None:
    for number in range(25):
        booking.receive(f"m{number:02}")
        booking.now += 0.01
    booking.now = 1025.0
    calls = booking.plan(room=2)
    assert [len(call.entries) for call in calls] == [10, 10]
    assert calls[0].entries[0].receipt_handle == "m00"
    assert calls[1].entries[0].receipt_handle == "m10"
    booking.apply_results(calls[0], Outcome.DONE)
    assert {e.receipt_handle for e in booking.plan()[0].entries} >= {f"m{n}" for n in range(20, 25)}


def test_one_queue_can_not_take_every_call(booking: BookHarness) -> None:
    for number in range(100):
        booking.receive(f"m{number}")
    booking.receive("other", queue="https://sqs/1/other")
    booking.now = 1025.0
    calls = booking.plan(room=16)
    assert [call.queue_url for call in calls].count(QUEUE) == 4
    assert "https://sqs/1/other" in [call.queue_url for call in calls]


def test_a_lease_is_in_one_call_at_a_time(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1020.0
    call = booking.one_call()
    booking.now = 1029.0
    assert booking.plan() == []
    booking.apply_results(call, Outcome.UNKNOWN)
    booking.now = 1029.2
    assert summary(booking.one_call()) == [("a", "extend", 30)]


def test_a_transient_failure_is_retried_within_the_margin(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.FAILED)
    assert booking.book.agenda.next_due(booking.now) == pytest.approx(1020.05)
    booking.now = 1020.05
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert booking.lease("a").expires_at == pytest.approx(1050.05)
    assert booking.lease("a").attempts == 0
    assert booking.kinds() == [EventKind.EXTENSION_FAILED, EventKind.LEASE_EXTENDED]


def test_among_retries_the_earliest_expiry_goes_first(booking: BookHarness) -> None:
    for number in range(10):
        booking.receive(f"old{number}")
    booking.now += 1
    for number in range(10):
        booking.receive(f"new{number}")
    booking.now = 1022.0
    old, new = booking.plan()
    booking.apply_results(new, Outcome.FAILED)
    booking.apply_results(old, Outcome.THROTTLED)
    booking.now = 1024.0
    first, _second = booking.plan()
    assert {entry.receipt_handle[:3] for entry in first.entries} == {"old"}


def test_failed_entries_of_a_good_batch_are_retried_and_the_others_are_not(
    booking: BookHarness,
) -> None:
    booking.receive("good")
    booking.receive("bad")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.DONE, Outcome.FAILED)
    booking.now = 1020.05
    assert summary(booking.one_call())[0] == ("bad", "extend", 30)


def test_a_lost_lease_is_no_longer_extended_and_is_reported(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.LOST)
    assert booking.kinds() == [EventKind.LEASE_LOST]
    assert booking.book.agenda.next_due(booking.now) == float("inf")


def test_an_expired_lease_is_distinguished_from_a_lost_one(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1030.0
    call = booking.one_call()
    assert booking.kinds() == [EventKind.LEASE_EXPIRED]
    booking.apply_results(call, Outcome.DONE)
    assert booking.lease("a").status is LeaseStatus.OWNED
    booking.now = 1200.0
    assert booking.plan() == []
    assert booking.kinds()[-2:] == [EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST]
    assert booking.lease("a").status is LeaseStatus.LOST


def test_refusal_after_12_hours_caps_the_lease_and_is_not_a_loss(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.CAPPED)
    assert booking.kinds() == [EventKind.LEASE_CAPPED]
    assert booking.book.agenda.next_due(booking.now) == float("inf")


def test_a_message_that_arrived_late_in_a_long_poll_is_extended_at_once_and_not_capped(
    booking: BookHarness,
) -> None:
    # Found by the simulation (calm 0): the longest possible hiding time is not the certain one.
    booking.receive("a", poll=20.0)
    assert summary(booking.one_call()) == [("a", "extend", 30)]


def test_a_message_that_was_delayed_for_too_long_is_neither_leased_nor_run(
    booking: BookHarness,
) -> None:
    # Found by the simulation (storm 14): a process that was stalled for hours.
    assert booking.receive("a", poll=29.9) is ReceivedAs.NEW
    assert booking.receive("b", poll=30.0) is ReceivedAs.LAPSED
    assert booking.book.get("b") is None


def test_a_message_of_unknown_timeout_is_late_if_even_the_longest_poll_was_over_long_before(
    booking: BookHarness,
) -> None:
    # Found by the simulation (storm 106): a standard queue confirms an extension by a stale handle.
    assert booking.receive("a", poll=20.9, hidden_for=0) is ReceivedAs.NEW
    assert booking.receive("b", poll=21.0, hidden_for=0) is ReceivedAs.LAPSED
    assert booking.book.get("b") is None


def test_the_last_cut_extension_never_shortens_what_a_slow_call_has_granted(
    booking: BookHarness,
) -> None:
    # Found by the simulation (calm 12): SQS counts from the arrival of the call.
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, max_lease=50.5))
    booking.now = 1020.0
    call = booking.one_call()
    booking.now = 1021.0
    booking.apply_results(call, Outcome.DONE)
    booking.now = 1040.0
    assert booking.plan() == []
    assert booking.kinds()[-1] is EventKind.LEASE_CAPPED


def test_extending_ends_at_max_lease(booking: BookHarness) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, max_lease=100))
    while (due := booking.book.agenda.next_due(booking.now)) < float("inf"):
        booking.now = due
        for call in booking.plan():
            booking.apply_results(call, Outcome.DONE)
    assert booking.kinds()[-1] is EventKind.LEASE_CAPPED
    assert 1099 <= booking.lease("a").expires_at <= 1100


def test_a_malformed_call_is_repeated_entry_by_entry(booking: BookHarness) -> None:
    for name in ("a", "b", "c"):
        booking.receive(name)
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.MALFORMED)
    calls = booking.plan()
    assert [len(call.entries) for call in calls] == [1, 1, 1]
    for call in calls:
        bad = call.entries[0].receipt_handle == "b"
        booking.apply_results(call, Outcome.MALFORMED if bad else Outcome.DONE)
    assert booking.lease("b").status is LeaseStatus.LOST
    assert booking.lease("a").expires_at == 1050.0


def test_a_task_that_opted_out_is_not_extended(booking: BookHarness) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, extend=False))
    assert booking.book.agenda.next_due(booking.now) == float("inf")
    booking.book.done("a", booking.now)
    booking.now += 0.05
    assert summary(booking.one_call()) == [("a", "delete", 0)]


def test_a_redelivery_of_a_running_message_gives_its_handle_to_the_lease(
    booking: BookHarness,
) -> None:
    booking.receive("a", handle="h1")
    booking.now = 1020.0
    call = booking.one_call()
    booking.now = 1031.0
    assert booking.receive("a", handle="h2", count=2) is ReceivedAs.REDELIVERED
    # The answer is about the old handle, and says nothing about the new one.
    booking.apply_results(call, Outcome.LOST)
    assert booking.lease("h1") is booking.lease("h2")
    assert booking.lease("h1").status is LeaseStatus.OWNED
    assert booking.lease("h1").expires_at == 1061.0
    booking.now = 1051.0
    assert summary(booking.one_call()) == [("h2", "extend", 30)]


@pytest.mark.parametrize("hidden_for", [0, 30])
def test_an_older_receive_that_arrives_late_does_not_give_its_handle_to_the_lease(
    booking: BookHarness, hidden_for: int
) -> None:
    booking.receive("a", handle="new", count=2)
    booking.now = 1010.0
    late = booking.receive("a", handle="old", count=1, hidden_for=hidden_for, poll=15.0)
    assert late is ReceivedAs.REDELIVERED
    assert booking.lease("old") is booking.lease("new")
    assert booking.lease("new").expires_at == 1030.0
    # On a standard queue a delete by the old handle would be confirmed and delete nothing.
    booking.book.done("old", booking.now)
    booking.now += 0.05
    assert summary(booking.one_call()) == [("new", "delete", 0)]


def test_an_older_receive_that_arrives_late_is_not_run_after_the_release(
    booking: BookHarness,
) -> None:
    booking.receive("a", handle="new", count=2)
    booking.now = 1010.0
    booking.book.release("new", 0, booking.now)
    late = booking.receive("a", handle="old", count=1, hidden_for=0, poll=15.0)
    assert late is ReceivedAs.LAPSED
    assert summary(booking.one_call()) == [("new", "release", 0)]


def test_a_lost_lease_whose_task_still_runs_here_resumes_after_a_redelivery(
    booking: BookHarness,
) -> None:
    booking.receive("a", handle="h1")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.LOST)
    assert booking.receive("a", handle="h2", count=3) is ReceivedAs.REDELIVERED
    booking.book.done("h1", booking.now)
    booking.now += 0.05
    assert summary(booking.one_call()) == [("h2", "delete", 0)]


def test_a_task_may_have_a_longer_timeout_than_its_queue(booking: BookHarness) -> None:
    terms = LeaseTerms(visibility_timeout=300, threshold=100)
    booking.receive("a", terms=terms, hidden_for=30)
    assert summary(booking.one_call()) == [("a", "extend", 300)]


def test_terms_default_to_a_third_as_threshold() -> None:
    assert LeaseTerms.of(30) == TERMS


def test_a_lease_near_its_end_is_reported_once(booking: BookHarness) -> None:
    terms = LeaseTerms(visibility_timeout=30, threshold=10, max_lease=1000)
    booking.receive("a", terms=terms)
    told_at = []
    while EventKind.LEASE_CAPPED not in booking.kinds():
        booking.now = booking.book.agenda.next_due(booking.now)
        for call in booking.plan():
            booking.apply_results(call, Outcome.DONE)
        if EventKind.LEASE_CAP_NEAR in booking.kinds():
            told_at.append(booking.now - 1000)
    assert 900 <= told_at[0] <= 920
    assert booking.kinds().count(EventKind.LEASE_CAP_NEAR) == 1


def test_a_lease_that_was_extended_for_the_last_time_is_near_its_end(booking: BookHarness) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, max_lease=60))
    booking.now += 20
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert EventKind.LEASE_CAP_NEAR not in booking.kinds()
    booking.now += 20
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert booking.kinds()[-1] is EventKind.LEASE_CAP_NEAR


def test_an_extension_that_is_the_last_because_its_answer_is_slow_is_near_its_end(
    booking: BookHarness,
) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, max_lease=52))
    booking.now += 20
    call = booking.one_call()
    # SQS may hide the message for 30 s from now on, so another extension may shorten that.
    booking.now += 2
    booking.apply_results(call, Outcome.DONE)
    assert booking.kinds()[-1] is EventKind.LEASE_CAP_NEAR
    booking.now = 1040.0
    assert booking.plan() == []
    assert booking.kinds()[-1] is EventKind.LEASE_CAPPED


def test_a_late_extension_that_is_cut_by_max_lease_is_not_sent(booking: BookHarness) -> None:
    # It would shorten the lease of anyone who has received the message since.
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, max_lease=50))
    booking.now = 1031.0
    assert booking.plan() == []
    assert booking.lease("a").status is LeaseStatus.LOST
    assert booking.kinds()[-2:] == [EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST]


def test_a_lease_whose_task_is_stopped_when_it_expires_is_not_extended_late(
    booking: BookHarness,
) -> None:
    # The message would stay hidden although no one works on it.
    booking.receive("a", terms=replace(TERMS, extend_late=False))
    booking.now = 1030.0
    assert booking.plan() == []
    assert booking.lease("a").status is LeaseStatus.LOST
    assert booking.kinds()[-2:] == [EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST]
    assert booking.book.agenda.next_due(booking.now) == math.inf


def test_an_expired_lease_that_pauses_after_a_failure_joins_no_call_of_another(
    booking: BookHarness,
) -> None:
    booking.receive("a", terms=replace(TERMS, extend_late=False))
    booking.now = 1012.0
    booking.receive("b")
    booking.now = 1020.0
    call = booking.one_call()
    booking.now = 1030.01
    booking.apply_results(call, Outcome.FAILED)
    assert booking.lease("a").status is LeaseStatus.EXPIRED
    booking.now = 1030.02
    booking.book.release("b", 0, booking.now)
    assert summary(booking.one_call()) == [("b", "release", 0)]


def test_such_a_lease_is_extended_late_while_its_delete_is_repeated(booking: BookHarness) -> None:
    booking.receive("a", terms=replace(TERMS, extend_late=False))
    booking.now = 1006.0
    booking.book.done("a", booking.now)
    booking.refuse_deletes(until=1019.0)  # The next try is due at 1031.4.
    booking.now = 1030.5
    assert summary(booking.one_call()) == [("a", "extend", 30)]


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED, Outcome.THROTTLED])
def test_a_delete_that_failed_until_its_lease_expired_is_tried_again_once_the_lease_is_extended(
    booking: BookHarness, outcome: Outcome
) -> None:
    # The pause between its tries has grown to seconds by then, and SQS answers again.
    booking.receive("a")
    booking.now = 1019.0
    booking.book.done("a", booking.now)
    booking.now += 0.05
    while (call := booking.one_call()).kind is CallKind.DELETE or booking.now < 1030.5:
        booking.apply_results(call, outcome)
        booking.now = booking.book.agenda.next_due(booking.now)
    booking.apply_results(call, Outcome.DONE)
    assert summary(booking.one_call()) == [("a", "delete", 0)]


def test_a_delete_that_is_not_permitted_is_not_tried_more_often_for_an_extension(
    booking: BookHarness,
) -> None:
    booking.receive("a")
    booking.now = 1010.0
    booking.book.done("a", booking.now)
    booking.refuse_deletes(until=1019.0)
    booking.now = 1020.0
    extension = booking.one_call()
    assert summary(extension) == [("a", "extend", 30)]
    booking.apply_results(extension, Outcome.DONE)
    assert booking.plan() == []


def test_a_full_late_extension_is_sent(booking: BookHarness) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, max_lease=70))
    booking.now = 1031.0
    assert summary(booking.one_call()) == [("a", "extend", 30)]
