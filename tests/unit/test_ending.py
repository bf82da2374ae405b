"""Deletes and releases: sent once that is safe, in batches, until they are confirmed."""

from __future__ import annotations

import itertools

import pytest

from celery_sqs_heartbeat.leases.calls import CallKind, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.unit.book_harness import BookHarness, summary

NEVER = float("inf")


@pytest.fixture
def booking() -> BookHarness:
    return BookHarness()


def test_acks_gather_for_50_ms_and_share_a_batch(booking: BookHarness) -> None:
    for name in ("a", "b", "c", "still held"):
        booking.receive(name)
    booking.book.done("a", booking.now)
    booking.book.done("b", booking.now + 0.02)
    booking.book.done("c", booking.now + 0.04)
    assert booking.book.agenda.next_due(booking.now) == pytest.approx(1000.05)
    booking.now = 1000.051
    call = booking.one_call()
    assert call.kind is CallKind.DELETE
    assert summary(call) == [("a", "delete", 0), ("b", "delete", 0), ("c", "delete", 0)]
    booking.apply_results(call, Outcome.DONE)
    assert (len(booking.book), booking.book.ending) == (1, 0)


def test_a_failed_delete_is_retried_and_the_lease_is_kept_meanwhile(booking: BookHarness) -> None:
    booking.receive("a")
    booking.book.done("a", booking.now)
    done_by: list[tuple[float, str]] = []
    booking.now += 0.05
    while booking.now < 1070:
        for call in booking.plan():
            action = call.entries[0].action.value
            done_by.append((booking.now, action))
            booking.apply_results(call, Outcome.DONE if action == "extend" else Outcome.THROTTLED)
        booking.now = booking.book.agenda.next_due(booking.now)
    extensions = [at for at, action in done_by if action == "extend"]
    assert len(extensions) >= 2
    assert all(later - earlier < 30 for earlier, later in itertools.pairwise(extensions))
    assert len(done_by) < 40
    assert booking.book.ending == 1


@pytest.mark.parametrize("earlier", [[], [Outcome.UNKNOWN]])
def test_a_delete_that_is_refused_for_its_handle_is_not_reported_as_a_delete(
    booking: BookHarness, earlier: list[Outcome]
) -> None:
    # A FIFO queue refuses an expired handle, and keeps the message. SQS confirms the delete of a
    # message that is deleted already.
    booking.receive("a")
    booking.book.done("a", booking.now)
    for outcome in [*earlier, Outcome.LOST]:
        booking.now += 0.05
        booking.apply_results(booking.one_call(), outcome)
    assert len(booking.book) == 0
    assert booking.kinds()[-1] is EventKind.DELETE_ABANDONED
    assert EventKind.MESSAGE_DELETED not in booking.kinds()
    assert booking.receive("a", handle="h2", count=2) is ReceivedAs.FINISHED


def test_a_delete_in_a_queue_that_is_not_there_is_abandoned_after_12_hours(
    booking: BookHarness,
) -> None:
    booking.receive("a")
    booking.book.done("a", booking.now)
    tries = 0
    while booking.book.ending:
        booking.now = booking.book.agenda.next_due(booking.now)
        for call in booking.plan():
            tries += 1
            booking.apply_results(call, Outcome.NO_QUEUE)
    assert booking.kinds()[-1] is EventKind.DELETE_ABANDONED
    assert booking.now - 1000 == pytest.approx(43_200, abs=60)
    # One delete every half minute, and some probes while its lease lasted.
    assert tries < 43_200 / 30 + 50


@pytest.mark.parametrize("is_pending", [False, True])
def test_a_message_received_again_after_its_task_succeeded_is_deleted_not_run(
    booking: BookHarness, is_pending: bool
) -> None:
    booking.receive("a", handle="h1")
    booking.book.done("h1", booking.now)
    booking.now += 0.05
    call = booking.one_call()
    if not is_pending:
        booking.apply_results(call, Outcome.DONE)
    assert booking.receive("a", handle="h2", count=2) is ReceivedAs.FINISHED
    if is_pending:
        booking.apply_results(call, Outcome.DONE)
    assert summary(booking.one_call()) == [("h2", "delete", 0)]


def test_a_release_is_made_at_once_and_no_extension_follows(booking: BookHarness) -> None:
    booking.receive("a")
    booking.now = 1005.0
    booking.book.release("a", 0, booking.now)
    call = booking.one_call()
    assert summary(call) == [("a", "release", 0)]
    booking.apply_results(call, Outcome.THROTTLED)
    booking.now = 1006.0
    call = booking.one_call()
    assert summary(call) == [("a", "release", 0)]
    booking.apply_results(call, Outcome.DONE)
    assert booking.book.agenda.next_due(booking.now) == NEVER
    assert booking.kinds() == [EventKind.MESSAGE_RELEASED]


def test_a_release_with_an_unknown_result_is_not_repeated(booking: BookHarness) -> None:
    # After the first release someone else may have the message. A second would take it from them.
    booking.receive("a")
    booking.book.release("a", 0, booking.now)
    booking.apply_results(booking.one_call(), Outcome.UNKNOWN)
    assert booking.book.agenda.next_due(booking.now) == NEVER
    assert booking.kinds() == [EventKind.MESSAGE_LAPSING]


def extended_late(booking: BookHarness) -> None:
    """Have message "a" extended after its lease expired. Anyone may have received it meanwhile."""
    booking.receive("a")
    booking.now = 1020.0
    extension = booking.one_call()
    booking.now = 1030.0
    booking.apply_results(extension, Outcome.DONE)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(30, "release")], id="late"),
        pytest.param([(20, "call"), (30, "done"), (30, "release")], id="after a late extension"),
        pytest.param([(20, "call"), (20, "release"), (30, "done")], id="it waited for one"),
        pytest.param([(29, "release"), (29, "call"), (29, "throttled"), (31, "")], id="a retry"),
    ],
)
def test_a_release_that_may_come_too_late_is_not_sent(
    booking: BookHarness, steps: list[tuple[float, str]]
) -> None:
    # On a standard queue SQS accepts extensions and releases by a stale handle.
    booking.receive("a")
    began = booking.now
    for after, step in steps:
        booking.now = began + after
        if step == "release":
            booking.book.release("a", 0, booking.now)
        elif step == "call":
            call = booking.one_call()
        elif step:
            booking.apply_results(call, Outcome(step))
    assert booking.plan() == []
    assert len(booking.book) == booking.book.ending == 0


def test_a_message_extended_late_is_kept_and_deleted_after_its_task(
    booking: BookHarness,
) -> None:
    extended_late(booking)
    booking.now = 1045.0
    booking.apply_results(booking.one_call(), Outcome.DONE)
    booking.book.done("a", booking.now)
    booking.now += 0.05
    assert summary(booking.one_call()) == [("a", "delete", 0)]


def test_a_message_that_was_received_again_may_be_released_again(booking: BookHarness) -> None:
    extended_late(booking)
    booking.receive("a", handle="a2")
    booking.book.release("a2", 0, booking.now)
    assert summary(booking.one_call()) == [("a2", "release", 0)]


def test_a_late_answer_shows_that_someone_has_received_the_message(booking: BookHarness) -> None:
    # Delayed for longer than the timeout: a release would disturb anyone who has the message now.
    booking.receive("a")
    booking.now = 1010.0
    assert booking.receive("a", handle="a2", poll=30.0) is ReceivedAs.LAPSED
    booking.book.release("a", 0, booking.now)
    assert booking.plan() == []


def test_releases_go_before_extensions_of_less_urgent_leases(booking: BookHarness) -> None:
    for number in range(15):
        booking.receive(f"m{number:02}")
    booking.now = 1012.0
    booking.book.release("m14", 60, booking.now)
    call = booking.one_call()
    assert summary(call)[0] == ("m14", "release", 60)
    assert {action for _, action, _ in summary(call)[1:]} == {"extend"}


def test_an_extension_that_was_due_before_goes_before_a_release(booking: BookHarness) -> None:
    booking.receive("urgent")
    booking.now = 1015.0
    booking.receive("failed")
    booking.now = 1021.0
    booking.book.release("failed", 0, booking.now)
    assert [action for _, action, _ in summary(booking.one_call())] == ["extend", "release"]


def test_deletes_that_fail_over_and_over_do_not_delay_a_new_one(booking: BookHarness) -> None:
    # More deletes than are called within five seconds. After that time each is tried again.
    for number in range(600):
        booking.receive(f"m{number}", terms=LeaseTerms(visibility_timeout=30, threshold=1))
        booking.book.done(f"m{number}", booking.now)
    booking.now += 5.0
    booking.receive("new")
    booking.book.done("new", booking.now)
    sent: set[str] = set()
    while "new" not in sent and booking.now < 1_025:
        booking.now += 0.5
        calls = booking.plan()
        sent |= {entry.receipt_handle for call in calls for entry in call.entries}
        for call in calls:
            booking.apply_results(call, Outcome.FAILED)
    assert "new" in sent


def test_a_release_while_an_extension_is_under_way_waits_for_its_answer(
    booking: BookHarness,
) -> None:
    booking.receive("a")
    booking.now = 1020.0
    extension = booking.one_call()
    booking.book.release("a", 0, booking.now)
    assert booking.plan() == []
    booking.apply_results(extension, Outcome.DONE)
    assert summary(booking.one_call()) == [("a", "release", 0)]


def test_a_message_released_and_received_again_here_is_a_new_lease(booking: BookHarness) -> None:
    booking.receive("a", handle="h1")
    booking.book.release("h1", 0, booking.now)
    release = booking.one_call()
    assert booking.receive("a", handle="h2", count=2) is ReceivedAs.NEW
    # The late answer to the release must neither change the new lease nor cause a retry.
    booking.apply_results(release, Outcome.THROTTLED)
    assert booking.book.get("h1") is None
    assert booking.book.agenda.next_due(booking.now) == 1020.0
    assert booking.book.ending == 0


def test_a_lease_that_is_let_expire_leaves_nothing_behind(booking: BookHarness) -> None:
    booking.receive("a")
    assert booking.book.let_expire("a", booking.now)
    assert not booking.book.let_expire("a", booking.now)
    assert len(booking.book) == 0
    assert booking.book.agenda.next_due(booking.now) == NEVER


def test_without_permission_a_release_is_given_up_and_deletes_continue(
    booking: BookHarness,
) -> None:
    for name in ("a", "b"):
        booking.receive(name)
    booking.book.release("a", 0, booking.now)
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    booking.now += 0.2
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    assert booking.book.get("a") is None
    booking.book.done("b", booking.now)
    booking.now += 0.05
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert booking.kinds()[-1] is EventKind.MESSAGE_DELETED


@pytest.mark.parametrize("act", ["done", "release", "let_expire"])
def test_an_unknown_handle_is_refused_quietly(booking: BookHarness, act: str) -> None:
    arguments = {"done": (0.0,), "release": (0, 0.0), "let_expire": (0.0,)}[act]
    assert getattr(booking.book, act)("unknown", *arguments) is False


def test_the_first_goal_wins(booking: BookHarness) -> None:
    booking.receive("a")
    booking.book.done("a", booking.now)
    booking.book.release("a", 0, booking.now)
    booking.now += 0.05
    assert summary(booking.one_call()) == [("a", "delete", 0)]


def test_a_task_that_succeeds_although_its_message_was_released_never_runs_again(
    booking: BookHarness,
) -> None:
    # A channel that closes releases what its tasks still work on.
    booking.receive("a", handle="h1")
    booking.book.release("h1", 0, booking.now)
    release = booking.one_call()
    booking.book.done("h1", booking.now)
    booking.apply_results(release, Outcome.DONE)
    assert booking.receive("a", handle="h2", count=2) is ReceivedAs.FINISHED

    booking.receive("b")
    booking.book.release("b", 0, booking.now)
    booking.book.done("b", booking.now)
    assert ("b", "delete", 0) in summary(booking.one_call())


def test_another_call_does_not_hurry_a_delete_that_pauses(booking: BookHarness) -> None:
    for name in ("paused", "other"):
        booking.receive(name)
    booking.book.done("paused", booking.now)
    booking.now += 0.05
    booking.apply_results(booking.one_call(), Outcome.DENIED)
    booking.book.done("other", booking.now)
    booking.now += 0.05
    assert summary(booking.one_call()) == [("other", "delete", 0)]


def test_a_delay_that_is_not_a_number_changes_nothing(booking: BookHarness) -> None:
    booking.receive("a")
    with pytest.raises(ValueError, match="NaN"):
        booking.book.release("a", float("nan"), booking.now)
    assert booking.book.ending == 0
    assert booking.book.release("a", 0, booking.now)


def test_no_call_follows_for_a_message_that_was_given_up(booking: BookHarness) -> None:
    booking.receive("a", handle="a1")
    booking.receive("a", handle="a2")
    assert booking.book.let_expire("a1", booking.now)
    assert not booking.book.done("a1", booking.now)
    assert not booking.book.release("a2", 0, booking.now)
    booking.now += 100
    assert booking.plan() == []
    assert len(booking.book) == 0


def test_a_message_that_was_given_up_and_received_again_runs_again(booking: BookHarness) -> None:
    booking.receive("a", handle="a1")
    booking.book.let_expire("a1", booking.now)
    booking.now += 40
    assert booking.receive("a", handle="a2", count=2) is ReceivedAs.NEW
