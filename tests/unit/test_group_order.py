"""The order of message groups in a book: which messages wait, stop a group or are released."""

from __future__ import annotations

from dataclasses import replace

import pytest

from celery_sqs_heartbeat.leases.calls import Call, CallKind, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from tests.unit.book_harness import TERMS, BookHarness, summary

IN_ORDER = replace(TERMS, in_order=True)


@pytest.fixture
def booking() -> BookHarness:
    return BookHarness()


def receive(booking: BookHarness, *names: str, group: str = "g", count: int = 1) -> None:
    """Receive messages. Each name ends with the message's number."""
    for name in names:
        booking.receive(
            name,
            handle=f"{name}-{count}",
            terms=IN_ORDER,
            count=count,
            group=group,
            number=int(name[1:]),
        )


def asked(call: Call) -> list[str]:
    return [f"{action} {handle}" for handle, action, _ in summary(call)]


def waiting(booking: BookHarness, *handles: str) -> list[bool]:
    return [booking.book.waits_behind(handle) for handle in handles]


def test_only_the_first_of_a_group_does_not_wait(booking: BookHarness) -> None:
    receive(booking, "m1", "m2", "m3")
    receive(booking, "n7", group="h")
    assert waiting(booking, "m1-1", "m2-1", "m3-1", "n7-1") == [False, True, True, False]


def test_the_sequence_numbers_decide_the_order_regardless_of_arrival(booking: BookHarness) -> None:
    receive(booking, "m10", "m9")
    assert waiting(booking, "m9-1", "m10-1") == [False, True]


@pytest.mark.parametrize(
    ("terms", "number"), [(TERMS, 1), (IN_ORDER, None)], ids=["parallel", "a standard queue"]
)
def test_messages_that_are_not_kept_in_order_do_not_wait(
    booking: BookHarness, terms: object, number: int | None
) -> None:
    for name in ("a", "b"):
        booking.receive(name, terms=terms, group="g", number=number)  # type: ignore[arg-type]
    booking.book.release("a", 0, booking.now)
    assert waiting(booking, "a", "b") == [False, False]
    assert booking.lease("b").goal is Goal.HOLD


def test_the_next_waits_until_sqs_has_confirmed_the_delete(booking: BookHarness) -> None:
    receive(booking, "m1", "m2")
    booking.book.done("m1-1", booking.now)
    call = booking.one_call()
    assert asked(call) == ["delete m1-1"]
    assert waiting(booking, "m2-1") == [True]
    booking.apply_results(call, Outcome.FAILED)
    assert waiting(booking, "m2-1") == [True]
    booking.now += 1.0
    booking.apply_results(booking.one_call(), Outcome.DONE)
    assert waiting(booking, "m2-1") == [False]
    assert booking.lease("m2-1").goal is Goal.HOLD


def test_a_delete_in_order_does_not_wait_for_others(booking: BookHarness) -> None:
    receive(booking, "m1")
    booking.receive("x")
    booking.book.done("x", booking.now)
    assert booking.plan() == []
    booking.book.done("m1-1", booking.now)
    assert asked(booking.one_call())[0] == "delete m1-1"


def test_releasing_a_message_releases_those_behind_it_first(booking: BookHarness) -> None:
    receive(booking, "m1", "m2", "m3", "m4")
    booking.book.release("m1-1", 90, booking.now, "failed")
    first = booking.one_call()
    assert asked(first) == ["release m4-1", "release m3-1", "release m2-1"]
    assert booking.plan() == []
    booking.apply_results(first, Outcome.DONE)
    last = booking.one_call()
    assert summary(last) == [("m1-1", "release", 90)]
    booking.apply_results(last, Outcome.DONE)
    released = [e for e in booking.events if e.kind is EventKind.MESSAGE_RELEASED]
    assert [event.cause for event in released] == [*[GROUP_STOPPED] * 3, "failed"]
    assert len(booking.book) == 0


def test_the_first_waits_for_a_release_that_is_tried_again(booking: BookHarness) -> None:
    receive(booking, "m1", "m2", "m3")
    booking.book.release("m1-1", 0, booking.now, "failed")
    booking.apply_results(booking.one_call(), Outcome.DONE, Outcome.THROTTLED)
    booking.now += 1.0
    again = booking.one_call()
    assert asked(again) == ["release m2-1"]
    booking.apply_results(again, Outcome.DONE)
    assert asked(booking.one_call()) == ["release m1-1"]


def test_the_first_does_not_wait_for_a_release_with_an_unknown_result(booking: BookHarness) -> None:
    receive(booking, "m1", "m2")
    booking.book.release("m1-1", 0, booking.now, "failed")
    booking.apply_results(booking.one_call(), Outcome.UNKNOWN)
    assert asked(booking.one_call()) == ["release m1-1"]


def test_the_release_of_the_first_is_given_up_if_the_others_take_too_long(
    booking: BookHarness,
) -> None:
    receive(booking, "m1", "m2")
    booking.book.release("m1-1", 0, booking.now, "failed")
    call = booking.one_call()
    booking.now += 31.0
    booking.plan()
    assert booking.book.get("m1-1") is None
    assert EventKind.MESSAGE_LAPSING in booking.kinds()
    booking.apply_results(call, Outcome.DONE)
    assert len(booking.book) == 0


def test_one_in_the_middle_leaves_those_before_it_alone(booking: BookHarness) -> None:
    receive(booking, "m1", "m2", "m3")
    booking.book.release("m2-1", 0, booking.now, "no room to wait")
    # While the first is hidden, SQS delivers none of the others: one call may release them all.
    assert asked(booking.one_call()) == ["release m3-1", "release m2-1"]
    assert booking.lease("m1-1").goal is Goal.HOLD


def test_a_message_that_is_given_up_stops_its_group(booking: BookHarness) -> None:
    receive(booking, "m1", "m2", "m3")
    assert booking.book.let_expire("m1-1", booking.now)
    first = booking.one_call()
    assert asked(first) == ["release m3-1"]
    booking.apply_results(first, Outcome.DONE)
    assert asked(booking.one_call()) == ["release m2-1"]


def test_a_lost_lease_stops_its_group_while_its_task_continues(booking: BookHarness) -> None:
    receive(booking, "m1", "m2", "m3")
    booking.now += 20.0
    call = booking.one_call()
    assert asked(call) == ["extend m1-1", "extend m2-1", "extend m3-1"]
    booking.apply_results(call, Outcome.LOST, Outcome.DONE, Outcome.DONE)
    assert booking.lease("m1-1").goal is Goal.HOLD
    assert [booking.lease(each).goal for each in ("m2-1", "m3-1")] == [Goal.RELEASE] * 2


def test_a_lease_that_expires_stops_its_group(booking: BookHarness) -> None:
    receive(booking, "m1")
    booking.now += 20.0
    booking.apply_results(booking.one_call(), Outcome.UNKNOWN)
    booking.now += 5.0
    receive(booking, "m2")
    booking.now += 6.0
    booking.plan()
    assert EventKind.LEASE_EXPIRED in booking.kinds()
    assert booking.lease("m2-1").goal is Goal.RELEASE


def test_messages_received_after_a_loss_do_not_wait_for_the_lost_one(booking: BookHarness) -> None:
    receive(booking, "m1")
    booking.now += 20.0
    booking.apply_results(booking.one_call(), Outcome.LOST)
    receive(booking, "m2")
    assert waiting(booking, "m2-1") == [False]


def test_a_message_that_is_received_again_regains_its_place(booking: BookHarness) -> None:
    receive(booking, "m1", "m2")
    booking.book.release("m1-1", 0, booking.now, "failed")
    for _ in range(2):
        booking.apply_results(booking.one_call(), Outcome.DONE)
    receive(booking, "m1", "m2", count=2)
    assert waiting(booking, "m1-2", "m2-2") == [False, True]


def test_a_message_whose_task_continues_regains_its_place(booking: BookHarness) -> None:
    receive(booking, "m1")
    booking.now += 20.0
    booking.apply_results(booking.one_call(), Outcome.LOST)
    receive(booking, "m1", "m2", count=2)
    assert waiting(booking, "m1-2", "m2-2") == [False, True]


def test_a_message_received_before_a_release_is_confirmed_neither_waits_nor_is_released(
    booking: BookHarness,
) -> None:
    receive(booking, "m1")
    booking.book.release("m1-1", 0, booking.now, "failed")
    release = booking.one_call()
    # SQS has released the message, and has moved it to the dead-letter queue.
    receive(booking, "m2")
    assert waiting(booking, "m2-1") == [False]
    booking.apply_results(release, Outcome.DONE)
    assert booking.lease("m2-1").goal is Goal.HOLD


def test_a_delete_that_can_never_succeed_stops_its_group(booking: BookHarness) -> None:
    receive(booking, "m1", "m2")
    booking.book.done("m1-1", booking.now)
    booking.apply_results(booking.one_call(), Outcome.LOST)
    assert asked(booking.one_call()) == ["release m2-1"]


def test_a_group_is_extended_in_one_call(booking: BookHarness) -> None:
    receive(booking, *(f"m{n}" for n in range(1, 11)))
    booking.now += 20.0
    call = booking.one_call()
    assert call.kind is CallKind.CHANGE_VISIBILITY
    assert len(call.entries) == 10


def test_a_message_that_waits_until_its_lease_nears_its_end_is_released(
    booking: BookHarness,
) -> None:
    terms = replace(IN_ORDER, max_lease=100.0)
    for number in (1, 2, 3):
        booking.receive(f"m{number}", terms=terms, group="g", number=number)
    seen: list[str] = []
    while booking.now < 1095.0 and not seen:
        booking.now = max(booking.now + 1.0, booking.book.agenda.next_due(booking.now))
        for call in booking.plan():
            seen += [each for each in asked(call) if each.startswith("release")]
            booking.apply_results(call, Outcome.DONE)
    assert sorted(seen) == ["release m2", "release m3"]
    causes = {e.message_id: e.cause for e in booking.events if e.kind.value == "message-released"}
    assert causes == {"m2": WAITED_LONG, "m3": GROUP_STOPPED}
    assert booking.lease("m1").goal is Goal.HOLD


def stops(booking: BookHarness) -> dict[str, bool]:
    """Return for each released message whether the event says that it stops its group."""
    kinds = (EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING)
    events = [*booking.events, *booking.book.take_events()]
    return {event.message_id: event.stops_group for event in events if event.kind in kinds}


def settle_all(booking: BookHarness) -> None:
    while calls := booking.plan():
        for call in calls:
            booking.apply_results(call, *[Outcome.DONE] * len(call.entries))


def test_only_the_first_message_of_a_group_is_reported_to_stop_it(booking: BookHarness) -> None:
    receive(booking, "m1", "m2", "m3")
    booking.book.release("m1-1", 0, booking.now, "failed")
    settle_all(booking)
    assert stops(booking) == {"m1": True, "m2": False, "m3": False}


def test_a_message_that_waits_behind_another_does_not_stop_its_group(booking: BookHarness) -> None:
    receive(booking, "m1", "m2")
    booking.book.release("m2-1", 0, booking.now, "shutdown")
    settle_all(booking)
    assert stops(booking) == {"m2": False}


@pytest.mark.parametrize("cause", [GROUP_STOPPED, WAITED_LONG, NO_ROOM])
def test_a_message_that_waited_until_it_was_the_first_does_not_stop_its_group(
    booking: BookHarness, cause: str
) -> None:
    receive(booking, "m1")
    booking.book.release("m1-1", 0, booking.now, cause)
    settle_all(booking)
    assert stops(booking) == {"m1": False}


def test_a_message_that_is_released_too_late_stops_its_group(booking: BookHarness) -> None:
    receive(booking, "m1", "m2")
    booking.now += 31.0
    booking.plan()
    booking.book.release("m1-1", 0, booking.now, "failed")
    settle_all(booking)
    assert stops(booking)["m1"] is True


def test_a_message_that_is_let_expire_stops_its_group(booking: BookHarness) -> None:
    receive(booking, "m1", "m2")
    booking.book.let_expire("m1-1", booking.now, "kept")
    settle_all(booking)
    assert stops(booking) == {"m1": True, "m2": False}


def test_nothing_is_reported_for_a_message_that_is_settled_otherwise(booking: BookHarness) -> None:
    receive(booking, "m1")
    booking.book.let_expire("m1-1", booking.now)
    assert stops(booking) == {}


def test_a_group_that_is_not_kept_in_order_does_not_stop(booking: BookHarness) -> None:
    booking.receive("a", group="g", number=1)
    booking.book.release("a", 0, booking.now, "failed")
    settle_all(booking)
    assert stops(booking) == {"a": False}
