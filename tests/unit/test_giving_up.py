"""Calls without an answer: their leases join other calls, and late answers still count."""

from __future__ import annotations

import math

import pytest

from celery_sqs_heartbeat.leases.agenda import MAX_CALLS_PER_LANE
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Action, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.policy import call_patience, is_lost
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.unit.book_harness import BookHarness, summary


@pytest.fixture
def booking() -> BookHarness:
    return BookHarness()


def given_up(booking: BookHarness, *, may_be_sent: bool = True) -> list[Call]:
    calls = booking.book.give_up(booking.now, lambda call: may_be_sent)
    booking.events += booking.book.take_events()
    return calls


@pytest.mark.parametrize(
    ("threshold", "patience"),
    [(0.5, 0.6), (1, 0.6), (4, 4 / 3), (10, 10 / 3), (30, 10), (60, 20), (600, 20)],
)
def test_the_keeper_waits_for_a_call_as_long_as_its_threshold_allows(
    threshold: float, patience: float
) -> None:
    assert call_patience(threshold) == pytest.approx(patience)


def test_a_lease_in_a_call_without_an_answer_joins_another(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1020.0
    stuck = booking.one_call()
    assert booking.book.agenda.next_due(booking.now) == pytest.approx(1020 + 10 / 3)
    assert given_up(booking) == []
    booking.now = 1026.0
    assert given_up(booking) == [stuck]
    assert booking.book.agenda.in_flight == 0
    assert booking.kinds() == [EventKind.EXTENSION_FAILED]

    booking.now = booking.book.agenda.next_due(booking.now)
    assert booking.now < 1027
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert booking.lease("a").status is LeaseStatus.OWNED


def test_the_most_urgent_lease_of_a_call_decides_how_long_it_may_take(booking: BookHarness) -> None:
    booking.receive("hurried", terms=LeaseTerms(visibility_timeout=30, threshold=5))
    booking.receive("lazy", terms=LeaseTerms(visibility_timeout=30, threshold=20))
    booking.now = 1010.0
    booking.one_call()
    assert booking.book.agenda.next_due(booking.now) == pytest.approx(1010 + 5 / 3)


def test_a_late_answer_counts_from_the_planning_of_its_call(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1020.0
    stuck = booking.one_call()
    booking.now = 1026.0
    given_up(booking)
    booking.now = 1028.0
    booking.apply_results(stuck, Outcome.DONE)
    assert booking.lease("a").expires_at == 1050.0
    assert booking.lease("a").is_exclusive


def test_after_a_late_answer_past_the_expiry_the_owner_is_unknown(
    booking: BookHarness,
) -> None:
    booking.receive("a")
    booking.now = 1020.0
    stuck = booking.one_call()
    booking.now = 1031.0
    given_up(booking)
    booking.plan()
    booking.now = 1032.0
    booking.apply_results(stuck, Outcome.DONE)
    assert booking.lease("a").expires_at == 1050.0
    assert not booking.lease("a").is_exclusive


@pytest.mark.parametrize(
    ("is_late_last", "expected"),
    [
        pytest.param(True, [1059.25, 1059.25], id="after the answer to the shorter one"),
        # First as if the shorter one had been performed when the longer one was planned.
        pytest.param(False, [1055.0, 1059.25], id="before it"),
    ],
)
def test_a_late_answer_counts_for_no_longer_than_a_shorter_extension_after_it(
    booking: BookHarness, is_late_last: bool, expected: list[float]
) -> None:
    # Found by the simulation (storm 66): SQS may have performed the shorter one last.
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, max_lease=60))
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.DONE)
    booking.now = 1040.0
    stuck = booking.one_call()
    assert summary(stuck) == [("a", "extend", 20)]
    booking.now = 1044.0
    given_up(booking)
    booking.now = 1044.25
    shorter = booking.one_call()
    assert summary(shorter) == [("a", "extend", 15)]
    booking.now = 1046.0
    known = []
    for call in (shorter, stuck) if is_late_last else (stuck, shorter):
        booking.apply_results(call, Outcome.DONE)
        known.append(booking.lease("a").expires_at)
    assert known == expected
    assert booking.lease("a").hidden_until == 1066.0


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.DONE])
def test_a_late_answer_without_success_changes_nothing(
    booking: BookHarness, outcome: Outcome
) -> None:
    booking.receive("a")
    booking.now = 1020.0
    stuck = booking.one_call()
    booking.now = 1026.0
    given_up(booking)
    before = (booking.lease("a").status, booking.lease("a").extend_at, len(booking.events))
    booking.apply_results(stuck, outcome)
    after = (booking.lease("a").status, booking.lease("a").extend_at, len(booking.events))
    assert after == before


def test_a_late_answer_to_a_delete_ends_the_lease(booking: BookHarness) -> None:
    booking.receive("a")
    booking.book.done("a", booking.now)
    booking.now += 0.05
    stuck = booking.one_call()
    booking.now += 6.0
    given_up(booking)
    assert booking.book.ending == 1
    booking.apply_results(stuck, Outcome.DONE)
    assert booking.kinds() == [EventKind.DELETE_FAILED, EventKind.MESSAGE_DELETED]
    assert booking.book.ending == len(booking.book) == 0


def test_a_release_without_an_answer_is_given_up(booking: BookHarness) -> None:
    # It may have taken effect. A second release could take the message from its next owner.
    booking.receive("a")
    booking.book.release("a", 0, booking.now)
    stuck = booking.one_call()
    booking.now += 6.0
    given_up(booking)
    assert booking.kinds() == [EventKind.MESSAGE_LAPSING]
    booking.apply_results(stuck, Outcome.DONE)
    assert booking.kinds() == [EventKind.MESSAGE_LAPSING]


def test_a_release_that_was_never_sent_is_tried_again(booking: BookHarness) -> None:
    # The first call creates the client, which may take longer than the wait for an answer.
    booking.receive("a")
    booking.book.release("a", 0, booking.now)
    stuck = booking.one_call()
    booking.now += 6.0
    given_up(booking, may_be_sent=False)
    assert booking.kinds() == []
    booking.now = booking.book.agenda.next_due(booking.now)
    again = booking.one_call()
    assert [entry.action for entry in again.entries] == [Action.RELEASE]
    booking.apply_results(again, Outcome.DONE)
    assert booking.kinds() == [EventKind.MESSAGE_RELEASED]
    booking.apply_results(stuck, Outcome.UNKNOWN)
    assert booking.kinds() == [EventKind.MESSAGE_RELEASED]
    # Nor is the message refused when it is received again.
    assert booking.receive("a", handle="again") is ReceivedAs.NEW


def test_calls_that_hang_leave_room_for_others(booking: BookHarness) -> None:
    for number in range(60):
        booking.receive(f"m{number}")
    booking.now = 1020.0
    hanging = booking.plan()
    assert [len(call.entries) for call in hanging] == [10] * 4
    booking.now = 1026.1
    assert given_up(booking) == hanging
    fresh = [entry.receipt_handle for call in booking.plan() for entry in call.entries]
    assert sorted(fresh) == [f"m{number}" for number in range(40, 60)]


def test_releases_lapse_in_time_although_their_queue_takes_no_more_calls(
    booking: BookHarness,
) -> None:
    for number in range(MAX_CALLS_PER_LANE):
        booking.receive(f"m{number}", terms=LeaseTerms.of(600))
        booking.now += 400
        booking.one_call()
        booking.now -= 400
    for number in range(3):
        booking.receive(f"late {number}")
        booking.book.release(f"late {number}", 0, booking.now)
    assert booking.plan() == []
    booking.now = booking.book.agenda.next_due(booking.now, 16)
    assert booking.now == booking.lease("late 0").expires_at
    assert booking.plan() == []
    assert booking.kinds() == [EventKind.MESSAGE_LAPSING] * 3
    assert booking.book.ending == 0


def test_an_expired_lease_is_lost_in_time_although_its_queue_gets_no_calls(
    booking: BookHarness,
) -> None:
    booking.receive("a", terms=LeaseTerms.of(30))
    booking.now += 30
    assert not is_lost(booking.lease("a"), booking.now)
    booking.now += 30
    assert is_lost(booking.lease("a"), booking.now)


def test_the_expiry_of_a_lease_in_an_endless_call_is_reported(booking: BookHarness) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=2, threshold=0.5))
    booking.now = 1001.5
    booking.one_call()
    booking.now = 1002.0
    assert booking.plan() == []
    assert booking.kinds() == [EventKind.LEASE_EXPIRED]
    assert booking.lease("a").status is LeaseStatus.EXPIRED


def test_an_expiry_is_due_although_there_is_no_room_for_calls(booking: BookHarness) -> None:
    booking.receive("a")
    assert booking.book.agenda.next_due(booking.now, 1) == 1020.0
    assert booking.book.agenda.next_due(booking.now, 0) == 1030.0


def test_the_expiry_of_a_task_that_opted_out_is_not_reported(booking: BookHarness) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=30, threshold=10, extend=False))
    assert booking.book.agenda.next_due(booking.now) == math.inf
    booking.now = 1100.0
    booking.plan()
    assert booking.kinds() == []


def test_a_redelivery_moves_the_expiry_that_is_watched(booking: BookHarness) -> None:
    booking.receive("a", terms=LeaseTerms(visibility_timeout=300, threshold=100))
    booking.now += 1
    booking.receive("a", handle="a2", count=2, hidden_for=20, terms=LeaseTerms.of(300))
    assert booking.book.agenda.next_due(booking.now, 0) == 1021.0
    assert summary(booking.one_call())[0][0] == "a2"


def test_the_expiry_of_an_extended_lease_is_still_watched(booking: BookHarness) -> None:
    booking.receive("a")
    for _ in range(3):
        booking.now = booking.book.agenda.next_due(booking.now)
        booking.apply_results(booking.one_call(), Outcome.DONE)
    assert booking.book.agenda.next_due(booking.now, 0) == booking.lease("a").expires_at
    booking.now = booking.lease("a").expires_at
    booking.plan()
    assert booking.kinds().count(EventKind.LEASE_EXPIRED) == 1
