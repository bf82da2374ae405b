"""Queues that refuse calls: probed with one entry until they accept calls again."""

from __future__ import annotations

import itertools

import pytest

from celery_sqs_heartbeat.leases.calls import CallKind, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.policy import MAX_PROBE_SECONDS, probe_delay
from tests.unit.book_harness import BookHarness, summary

REFUSED = pytest.mark.parametrize("refused", [Outcome.DENIED, Outcome.NO_QUEUE])
KEPT = LeaseTerms(visibility_timeout=600, threshold=200)


@pytest.fixture
def booking() -> BookHarness:
    return BookHarness()


@pytest.mark.parametrize(
    ("refusals", "pause"), [(1, 0.2), (2, 0.4), (3, 0.8), (6, 6.4), (7, 10.0), (99, 10.0)]
)
def test_probes_of_a_refusing_queue_become_rarer(refusals: int, pause: float) -> None:
    assert probe_delay(refusals, jitter=1.0) == pytest.approx(pause)
    assert probe_delay(refusals, jitter=0.0) == pytest.approx(pause / 2)


@REFUSED
def test_after_one_refusal_a_single_entry_is_tried_and_then_all_others(
    booking: BookHarness, refused: Outcome
) -> None:
    for number in range(12):
        booking.receive(f"m{number}")
    booking.now = 1020.0
    calls = booking.plan()
    assert [len(call.entries) for call in calls] == [10, 2]
    for call in calls:
        booking.apply_results(call, refused)
    assert booking.plan() == []

    booking.now = booking.book.agenda.next_due(booking.now)
    assert booking.now == pytest.approx(1020.2)
    probe = booking.one_call()
    assert len(probe.entries) == 1
    booking.apply_results(probe, Outcome.DONE)
    assert [len(call.entries) for call in booking.plan()] == [10, 1]
    assert EventKind.PERMISSION_GRANTED in booking.kinds()
    assert EventKind.LEASE_EXPIRED not in booking.kinds()


def test_a_queue_that_keeps_refusing_is_probed_and_the_expiry_of_its_leases_reported(
    booking: BookHarness,
) -> None:
    booking.receive("a")
    booking.receive("b")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    probes: list[float] = []
    while booking.now < 1100:
        booking.now = booking.book.agenda.next_due(booking.now)
        for call in booking.plan():
            assert len(call.entries) == 1
            probes.append(booking.now)
            booking.apply_results(call, Outcome.DENIED)
        booking.receive(f"new at {booking.now}", terms=KEPT)
    pauses = [later - earlier for earlier, later in itertools.pairwise(probes)]
    assert max(pauses[:5]) < MAX_PROBE_SECONDS
    assert len(probes) < 20
    kinds = booking.kinds()
    assert kinds.count(EventKind.PERMISSION_DENIED) == 1
    assert kinds.count(EventKind.LEASE_EXPIRED) == 2


def refuse_twice(booking: BookHarness) -> None:
    """Receive a message that is due soon and one that is not. Their queue refuses extensions."""
    booking.receive("a")
    booking.receive("long", terms=KEPT)
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    booking.now += 0.2
    booking.apply_results(booking.one_call(), Outcome.DENIED)


def test_leases_of_a_refusing_queue_continue_once_it_accepts_extensions_again(
    booking: BookHarness,
) -> None:
    refuse_twice(booking)
    booking.receive("new", terms=KEPT)
    statuses = {name: booking.lease(name).status for name in ("a", "long", "new")}
    assert set(statuses.values()) == {LeaseStatus.REFUSED}

    booking.now += 0.4
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert booking.lease("long").status is booking.lease("new").status is LeaseStatus.OWNED
    assert booking.lease("a").expires_at == pytest.approx(1050.6)


def test_a_release_outlives_a_single_refusal(booking: BookHarness) -> None:
    booking.receive("a")
    booking.book.release("a", 5, booking.now)
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    assert booking.plan() == []
    booking.now += 0.2
    assert summary(booking.one_call()) == [("a", "release", 5)]


def test_a_repeated_release_requests_the_rest_of_its_delay(
    booking: BookHarness,
) -> None:
    # A message that is due at a certain time must not be late because SQS was throttling.
    booking.receive("a")
    booking.book.release("a", 20, booking.now)
    asked_at, tries = booking.now, []
    while booking.now < asked_at + 4:
        call = booking.one_call()
        tries.append((booking.now - asked_at, call.entries[0].timeout))
        booking.apply_results(call, Outcome.THROTTLED)
        booking.now = booking.book.agenda.next_due(booking.now)
    assert tries[0] == (0, 20)
    assert tries[-1][1] < 20
    assert all(20 <= after + timeout < 21 for after, timeout in tries)


def test_no_extension_follows_a_release_that_was_refused(booking: BookHarness) -> None:
    booking.receive("a")
    booking.book.release("a", 0, booking.now)
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    booking.book.done("a", booking.now)
    assert not booking.lease("a").terms.extend


def test_a_delete_does_not_wait_for_a_probe_of_extensions(booking: BookHarness) -> None:
    booking.receive("held", terms=KEPT)
    booking.receive("done")
    booking.now = 1019.0
    booking.book.done("done", booking.now)
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.THROTTLED)
    while booking.now < 1040.0:
        booking.now = booking.book.agenda.next_due(booking.now)
        for call in booking.plan():
            is_delete = call.entries[0].action.value == "delete"
            booking.apply_results(call, Outcome.THROTTLED if is_delete else Outcome.DENIED)
    deletes = [event for event in booking.events if event.kind is EventKind.DELETE_FAILED]
    assert len(deletes) >= 5


@pytest.mark.parametrize("unclear", [Outcome.UNKNOWN, Outcome.THROTTLED, Outcome.FAILED])
def test_a_probe_that_is_not_refused_lets_whole_batches_go_next(
    booking: BookHarness, unclear: Outcome
) -> None:
    # While SQS has problems, leases must not wait for one probe after another.
    for number in range(10):
        booking.receive(f"m{number}")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    booking.now += 0.2
    booking.apply_results(booking.one_call(), unclear)
    assert [len(call.entries) for call in booking.plan()] == [10]
    assert EventKind.PERMISSION_GRANTED not in booking.kinds()


def test_refusals_of_one_batch_count_once(booking: BookHarness) -> None:
    for name in ("a", "b", "c"):
        booking.receive(name)
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    assert booking.lease("a").status is LeaseStatus.OWNED
    assert booking.kinds().count(EventKind.PERMISSION_DENIED) == 1


def test_a_granted_permission_does_not_revive_a_lost_lease(booking: BookHarness) -> None:
    # Its delete is repeated. An extension by the stale handle would hide the new owner's message.
    booking.receive("lost")
    booking.receive("other")
    booking.now = 1020.0
    booking.apply_results(booking.one_call(), Outcome.LOST, Outcome.DENIED)
    booking.book.done("lost", booking.now)
    while booking.now < 1023.0:
        booking.now = booking.book.agenda.next_due(booking.now)
        for call in booking.plan():
            is_delete = call.entries[0].action.value == "delete"
            booking.apply_results(call, Outcome.THROTTLED if is_delete else Outcome.DENIED)
    assert booking.lease("other").status is LeaseStatus.REFUSED
    booking.now += 5.0
    for call in booking.plan():
        is_delete = call.entries[0].action.value == "delete"
        booking.apply_results(call, Outcome.THROTTLED if is_delete else Outcome.DONE)
    assert booking.lease("other").status is LeaseStatus.OWNED
    assert booking.lease("lost").status is LeaseStatus.LOST


def test_an_expiry_is_reported_though_the_grant_comes_first(booking: BookHarness) -> None:
    refuse_twice(booking)
    booking.now = 1029.0
    probe = booking.one_call()
    booking.now = 1030.5
    booking.apply_results(probe, Outcome.DONE)
    assert EventKind.LEASE_EXPIRED in booking.kinds()


@REFUSED
def test_a_refused_delete_is_tried_again_soon_and_then_ever_more_rarely(
    booking: BookHarness, refused: Outcome
) -> None:
    booking.receive("done", terms=KEPT)
    booking.book.done("done", booking.now)
    tried: list[float] = []
    while len(tried) < 11:
        booking.now = booking.book.agenda.next_due(booking.now)
        for call in booking.plan():
            is_delete = call.kind is CallKind.DELETE
            tried += [booking.now] * is_delete
            booking.apply_results(call, refused if is_delete else Outcome.DONE)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses[:3] == pytest.approx([0.2, 0.4, 0.8])
    assert pauses[-2:] == pytest.approx([30.0, 30.0])
    assert booking.kinds()[:2] == [EventKind.PERMISSION_DENIED, EventKind.DELETE_FAILED]


def refused_deletes(booking: BookHarness) -> None:
    """Have the deletes of two messages refused until they are tried rarely."""
    for name, until in (("a", 1007.0), ("b", 1090.0)):
        booking.receive(name, terms=KEPT)
        booking.book.done(name, booking.now)
        while booking.now < until:
            booking.now = booking.book.agenda.next_due(booking.now)
            for call in booking.plan():
                booking.apply_results(call, Outcome.DENIED)


def test_a_delete_that_failed_otherwise_before_is_tried_as_soon(booking: BookHarness) -> None:
    booking.receive("a", terms=KEPT)
    booking.book.done("a", booking.now)
    for _ in range(11):
        booking.now = booking.book.agenda.next_due(booking.now)
        booking.apply_results(booking.one_call(), Outcome.THROTTLED)
    booking.now = booking.book.agenda.next_due(booking.now)
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    assert booking.book.agenda.next_due(booking.now) - booking.now == pytest.approx(0.2)


def test_once_a_delete_succeeds_again_the_others_do_not_wait(booking: BookHarness) -> None:
    refused_deletes(booking)
    booking.now = booking.book.agenda.next_due(booking.now)
    first = booking.one_call()
    assert len(first.entries) == 1
    booking.apply_results(first, Outcome.DONE)
    assert len(booking.book) == 1
    assert booking.book.agenda.next_due(booking.now) <= booking.now
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert len(booking.book) == 0


def test_a_delete_that_succeeds_again_in_another_queue_hurries_none(booking: BookHarness) -> None:
    refused_deletes(booking)
    booking.receive("c", queue="https://sqs/1/another", terms=KEPT)
    booking.book.done("c", booking.now)
    for outcome in (Outcome.DENIED, Outcome.DONE):
        booking.now = booking.book.agenda.next_due(booking.now)
        call = booking.one_call()
        assert [entry.receipt_handle for entry in call.entries] == ["c"]
        booking.apply_results(call, outcome)
    assert booking.plan() == []
    assert booking.book.agenda.next_due(booking.now) > booking.now


def test_a_flush_tries_every_delete_at_once(booking: BookHarness) -> None:
    refused_deletes(booking)
    assert booking.book.agenda.next_due(booking.now) > booking.now
    booking.book.results.hurry_deletes(booking.now)
    hurried = booking.one_call()
    assert len(hurried.entries) == 2
    # Its pauses start from the shortest again.
    booking.now += 0.05
    booking.apply_results(hurried, Outcome.DENIED)
    assert booking.book.agenda.next_due(booking.now) - booking.now == pytest.approx(0.2)
