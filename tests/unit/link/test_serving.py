"""The keeper's end of the link handles the worker's messages and reports the ends of leases."""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap
from typing import Any

import pytest

from celery_sqs_heartbeat.current.table import REACH, Flag, Mark, Table, key_of
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link import messages, serving
from celery_sqs_heartbeat.link.frames import BrokenLink
from celery_sqs_heartbeat.link.held_messages import HeldMessage
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.leases import lease_of
from tests.support.linked import Elsewhere, message_of

QUEUE = "https://q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


class Served:
    """A keeper to which the test sends the messages of a worker."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.table = Table(mmap(-1, Table.size_for(REACH)))
        self.sent: list[Call] = []
        self.elsewhere = Elsewhere(self.table, self.clock, 1.0, self.sent.append)

    def take(self, *message: Any) -> None:
        self.elsewhere.inbox.post(message)
        self.elsewhere.take()

    def receive(
        self, message: str = "m", *, handle: str | None = None, count: int = 1, poll: float = 0.0
    ) -> ReceivedAs:
        received = message_of(message, handle or message, count)
        return self.elsewhere.receive(QUEUE, received, TERMS, 30, poll)

    def resume(self, lease: Lease, *, was_releasing: bool = False) -> None:
        holding = HeldMessage(lease=lease, table=self.table, pid=77)
        self.take(*messages.resume(holding, was_releasing=was_releasing))

    def step(self, outcomes: Sequence[Outcome] = (Outcome.DONE,)) -> list[tuple[str, str]]:
        """Make the calls that are due and answer them. Return their entries."""
        self.elsewhere.keeper.step()
        asked = [
            (each.action.value, each.receipt_handle) for call in self.sent for each in call.entries
        ]
        self.sent.clear()
        while self.elsewhere.calls.out:
            self.elsewhere.calls.answer(0, outcomes)
        # This step reports the outcomes.
        self.elsewhere.keeper.step()
        return asked

    def said(self) -> list[list[Any]]:
        said = list(self.elsewhere.outbox.messages)
        self.elsewhere.outbox.messages.clear()
        return said

    def overs(self) -> list[list[Any]]:
        return [each for each in self.said() if each[0] == "over"]

    @property
    def lease(self) -> Lease:
        (lease,) = self.elsewhere.keeper.leases()
        return lease


@pytest.fixture
def served() -> Served:
    return Served()


def test_a_received_message_is_leased_and_its_worker_hears_nothing(served: Served) -> None:
    assert served.receive() is ReceivedAs.NEW
    assert served.lease.receipt_handle == "m"
    assert served.lease.terms == TERMS
    served.clock.advance(20.0)
    assert served.step() == [("extend", "m")]
    assert served.said() == []


def test_a_done_message_is_deleted_and_ends_when_sqs_confirms_it(served: Served) -> None:
    served.receive()
    served.take("started", "m", 999.5, 4711)
    assert served.lease.started_at == 999.5
    served.take("done", "m")
    assert served.overs() == []
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m")]
    assert served.overs() == [["over", "m"]]
    assert len(served.elsewhere.keeper) == 0


def test_a_released_message_ends_and_its_worker_learns_the_outcome(served: Served) -> None:
    served.receive()
    served.take("release", "m", 7, "failed")
    assert served.step() == [("release", "m")]
    over, event = served.said()
    assert over == ["over", "m"]
    assert event[0] == "event"
    happened = messages.read_event(event[1])
    assert happened.kind is EventKind.MESSAGE_RELEASED
    assert (happened.outcome, happened.visibility_timeout) == (Outcome.DONE, 7)
    assert happened.cause == "failed"


def test_a_dropped_message_ends_at_once(served: Served) -> None:
    served.receive()
    served.take("drop", "m", "")
    assert served.overs() == [["over", "m"]]
    served.clock.advance(25.0)
    assert served.step() == []


def test_a_message_left_to_its_timeout_is_reported_with_the_reason(served: Served) -> None:
    served.receive()
    served.take("drop", "m", "kept")
    assert served.step() == []
    event, over = sorted(served.said())
    assert over == ["over", "m"]
    happened = messages.read_event(event[1])
    assert (happened.kind, happened.cause) == (EventKind.MESSAGE_LAPSING, "kept")


@pytest.mark.parametrize(
    "message",
    [("done", "x"), ("drop", "x", ""), ("release", "x", 0, ""), ("started", "x", 0.0, 4711)],
)
def test_an_unknown_name_is_reported_as_ended(served: Served, message: tuple[Any, ...]) -> None:
    served.take(*message)
    assert served.said() == [["over", "x"]]


def test_a_redelivery_keeps_its_name_and_its_worker_learns_the_handle(served: Served) -> None:
    served.receive()
    assert served.receive(handle="m2", count=2) is ReceivedAs.REDELIVERED
    ((kind, fields),) = served.said()
    again = messages.read_lease(fields)
    assert (kind, again.handles, again.receipt_handle) == ("kept", ("m", "m2"), "m2")
    assert (again.receive_count, again.last_timeout) == (2, 30)
    assert again.received_at == served.clock()
    assert served.lease.handles == ("m", "m2")
    served.take("done", "m")
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m2")]
    assert served.overs() == [["over", "m"]]


def test_a_message_that_is_received_again_after_its_delete_is_deleted_again(
    served: Served,
) -> None:
    served.receive()
    served.take("done", "m")
    served.clock.advance(1.0)
    served.step()
    assert served.receive(handle="m2", count=2) is ReceivedAs.FINISHED
    assert served.overs() == [["over", "m"]]
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m2")]
    # Another lease has another name: this one the worker has never heard of.
    assert served.overs() == [["over", "m2"]]


def test_a_second_ack_that_crosses_the_end_is_answered(served: Served) -> None:
    served.receive()
    served.take("done", "m")
    served.clock.advance(1.0)
    served.step()
    served.take("done", "m")
    assert served.overs() == [["over", "m"], ["over", "m"]]


def test_a_receive_after_a_release_ends_the_lease_before_it(served: Served) -> None:
    served.receive()
    served.take("release", "m", 0, "failed")
    assert served.receive(handle="m2") is ReceivedAs.NEW
    assert served.overs() == [["over", "m"]]
    assert served.lease.receipt_handle == "m2"


def test_an_ack_after_a_release_prevails(served: Served) -> None:
    served.receive()
    served.take("release", "m", 0, "failed")
    served.take("done", "m")
    assert served.lease.goal is Goal.DELETE
    assert served.receive(handle="m2") is ReceivedAs.FINISHED
    assert served.lease.handles == ("m", "m2")
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m2")]
    assert served.overs() == [["over", "m"]]


def test_a_delayed_receive_makes_the_lease_uncertain(served: Served) -> None:
    served.receive()
    assert served.receive(handle="late", count=2, poll=40.0) is ReceivedAs.LAPSED
    assert not served.lease.is_exclusive
    assert served.lease.handles == ("m",)
    served.take("release", "m", 0, "failed")
    assert served.step() == []
    assert ["over", "m"] in served.said()


def test_a_message_that_was_finished_under_an_earlier_keeper_is_not_run(served: Served) -> None:
    served.take("finished", [(QUEUE, "m")])
    assert served.receive() is ReceivedAs.FINISHED
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m")]


def test_a_message_that_an_earlier_keeper_may_release_is_skipped_once(served: Served) -> None:
    served.take("unanswered", [((QUEUE, "m"), ("old", 0.0))])
    assert served.receive(handle="m2", count=2) is ReceivedAs.RELEASED
    served.clock.advance(31.0)
    assert served.receive(handle="m3", count=3) is ReceivedAs.NEW
    assert not served.lease.is_exclusive


@pytest.mark.parametrize("goal", [Goal.HOLD, Goal.DELETE, Goal.RELEASE])
def test_a_lease_is_resumed_with_its_goal(served: Served, goal: Goal) -> None:
    lease = lease_of("m", expires_at=served.clock() + 20.0)
    lease.goal = goal
    served.resume(lease)
    expected = {Goal.HOLD: [], Goal.DELETE: [("delete", "m")], Goal.RELEASE: [("release", "m")]}
    assert served.step() == expected[goal]
    assert served.overs() == ([] if goal is Goal.HOLD else [["over", "m"]])


def test_a_release_that_may_have_been_sent_ends_without_a_second_call(served: Served) -> None:
    lease = lease_of("m", expires_at=served.clock() + 20.0)
    lease.goal = Goal.RELEASE
    served.resume(lease, was_releasing=True)
    assert served.step() == []
    said = served.said()
    assert ["over", "m"] in said
    kinds = [messages.read_event(each[1]).kind for each in said if each[0] == "event"]
    assert kinds == [EventKind.MESSAGE_LAPSING]


def test_a_release_that_comes_too_late_ends_when_it_is_resumed(served: Served) -> None:
    lease = lease_of("m", expires_at=served.clock() - 1.0)
    lease.goal = Goal.RELEASE
    served.resume(lease)
    assert served.overs() == [["over", "m"]]


def test_the_table_shows_calls_in_flight_and_ended_leases(served: Served) -> None:
    key = key_of("m")
    served.receive()
    served.take("release", "m", 0, "failed")
    served.elsewhere.keeper.step()
    record = served.table.read(key)
    assert record.flags & Flag.RELEASING
    assert not record.flags & Flag.OVER
    served.elsewhere.calls.answer(0, [Outcome.DONE])
    record = served.table.read(key)
    assert record.mark is Mark.GIVEN_BACK
    assert record.flags & Flag.OVER
    assert not record.flags & Flag.RELEASING


def test_only_events_that_its_worker_needs_are_reported(served: Served) -> None:
    served.receive()
    served.take("started", "m", 0.0, 4711)
    served.clock.advance(25.0)
    assert served.step() == [(Action.EXTEND.value, "m")]
    assert served.said() == []
    served.clock.advance(25.0)
    served.step([Outcome.LOST])
    (event,) = served.said()
    assert messages.read_event(event[1]).kind is EventKind.LEASE_LOST


@pytest.mark.parametrize(
    "message",
    [
        ["resume", False, None, "hold", "owned", ["no", "field", []]],
        ["resume", False, None, "no", "owned", [*messages.lease_fields(lease_of("h"))]],
        ["finished", [1]],
        ["unanswered", [["no", "handle", "here"]]],
    ],
)
def test_an_invalid_message_breaks_the_link(served: Served, message: list[Any]) -> None:
    with pytest.raises(BrokenLink):
        served.elsewhere.end.take(message)


def test_other_messages_are_not_handled(served: Served) -> None:
    assert not served.elsewhere.end.take(["stop", 5.0])


@pytest.mark.parametrize(
    "message", [["done"], ["resume", False], ["release", "m", 1], ["drop", "m"], ["started"]]
)
def test_a_message_that_lacks_fields_is_not_ignored(served: Served, message: list[Any]) -> None:
    assert serving.is_about_leases(message)
    assert not served.elsewhere.end.take(message)
