"""The keeper's end of the link handles the worker's messages and reports the ends of leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from mmap import mmap
from typing import Any

import pytest

from celery_sqs_heartbeat.current.table import REACH, Flag, Mark, Record, Table, key_of
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.link import messages, serving
from celery_sqs_heartbeat.link.frames import BrokenLink
from celery_sqs_heartbeat.link.held_message import HeldMessage
from celery_sqs_heartbeat.testing import FakeClock
from tests.model.linked import Elsewhere
from tests.support.leases import lease_of

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
        self,
        number: int = 1,
        *,
        message: str = "m",
        handle: str | None = None,
        receives: int = 1,
        receipt: ReceivedAs = ReceivedAs.NEW,
        place: int | None = None,
        is_certain: bool = True,
    ) -> None:
        receive = Receive(
            queue_url=QUEUE,
            message_id=message,
            receipt_handle=handle or message,
            receive_count=receives,
            hidden_for=30,
            sent_at=self.clock(),
            arrived_at=self.clock(),
            task="task",
            task_id="id",
        )
        values, terms = astuple(receive), astuple(TERMS)
        self.take("received", number, receives, place, receipt.value, values, terms, is_certain)

    def resume(self, lease: Lease, number: int = 1, *, was_releasing: bool = False) -> None:
        holding = HeldMessage(lease=lease, number=number, table=self.table, pid=77)
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


def test_a_received_message_is_leased(served: Served) -> None:
    served.receive(place=3)
    assert served.lease.receipt_handle == "m"
    assert served.lease.terms == TERMS
    assert (served.lease.task, served.lease.task_id) == ("task", "id")
    served.clock.advance(20.0)
    assert served.step() == [("extend", "m")]
    assert served.said() == []


def test_a_done_message_is_deleted_and_ends_when_sqs_confirms_it(served: Served) -> None:
    served.receive()
    served.take("started", 1, 1, 999.5, 4711)
    assert served.lease.started_at == 999.5
    served.take("done", 1, 1)
    assert served.overs() == []
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m")]
    assert served.overs() == [["over", 1, 1, True]]
    assert len(served.elsewhere.keeper) == 0


def test_a_released_message_ends_and_its_worker_learns_the_outcome(served: Served) -> None:
    served.receive()
    served.take("release", 1, 1, 7, "failed")
    assert served.step() == [("release", "m")]
    over, event = served.said()
    assert over == ["over", 1, 1, False]
    assert event[:2] == ["event", 1]
    happened = messages.read_event(event[2])
    assert happened.kind is EventKind.MESSAGE_RELEASED
    assert (happened.outcome, happened.visibility_timeout) == (Outcome.DONE, 7)
    assert happened.cause == "failed"


def test_a_dropped_message_ends_at_once(served: Served) -> None:
    served.receive()
    served.take("drop", 1, 1, "")
    assert served.overs() == [["over", 1, 1, False]]
    served.clock.advance(25.0)
    assert served.step() == []


def test_a_message_left_to_its_timeout_is_reported_with_the_reason(served: Served) -> None:
    served.receive()
    served.take("drop", 1, 1, "kept")
    assert served.step() == []
    event, over = sorted(served.said())
    assert over == ["over", 1, 1, False]
    happened = messages.read_event(event[2])
    assert (happened.kind, happened.cause) == (EventKind.MESSAGE_LAPSING, "kept")


@pytest.mark.parametrize(
    "message",
    [("done", 9, 3), ("drop", 9, 3, ""), ("release", 9, 3, 0, ""), ("started", 9, 3, 0.0, 4711)],
)
def test_an_unknown_number_is_reported_as_ended(served: Served, message: tuple[Any, ...]) -> None:
    served.take(*message)
    assert served.said() == [["over", 9, 3, False]]


def test_a_redelivery_keeps_its_number(served: Served) -> None:
    served.receive(place=3)
    served.receive(handle="m2", receives=2, place=3, receipt=ReceivedAs.REDELIVERED)
    assert served.lease.handles == ("m", "m2")
    served.take("done", 1, 2)
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m2")]
    assert served.overs() == [["over", 1, 2, True]]


def test_the_end_of_an_earlier_receive_does_not_end_the_redelivery(served: Served) -> None:
    """The two messages cross on the link. The count of receives tells them apart."""
    served.receive()
    served.take("done", 1, 1)
    served.clock.advance(1.0)
    served.step()
    served.receive(handle="m2", receives=2, receipt=ReceivedAs.FINISHED)
    assert served.overs() == [["over", 1, 1, True]]
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m2")]
    assert served.overs() == [["over", 1, 2, True]]


def test_a_second_ack_that_crosses_the_end_is_answered_for_its_own_receive(served: Served) -> None:
    served.receive()
    served.take("done", 1, 1)
    served.clock.advance(1.0)
    served.step()
    served.take("done", 1, 1)
    assert served.overs() == [["over", 1, 1, True], ["over", 1, 1, False]]


def test_a_receive_after_a_release_ends_the_lease_before_it(served: Served) -> None:
    served.receive()
    served.take("release", 1, 1, 0, "failed")
    served.receive(2, handle="m2")
    assert served.overs() == [["over", 1, 1, False]]
    assert served.lease.receipt_handle == "m2"


def test_an_ack_after_a_release_leaves_no_number_behind(served: Served) -> None:
    """The worker has begun a new lease: it did not know that its keeper could still delete."""
    served.receive(place=3)
    served.take("release", 1, 1, 0, "failed")
    served.take("done", 1, 1)
    assert served.lease.goal is Goal.DELETE
    served.receive(2, handle="m2", receipt=ReceivedAs.FINISHED, place=4)
    assert served.overs() == [["over", 1, 1, False]]
    assert served.table.find(key_of("m2")) is not None or served.lease.handles == ("m2",)
    served.clock.advance(1.0)
    assert served.step() == [("delete", "m2")]
    assert served.overs() == [["over", 2, 1, True]]


def test_a_lease_keeps_its_number_however_many_leases_follow(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CAPACITY", 3)
    served.receive(1, message="long")
    for number in range(2, 12):
        served.receive(number, message=f"m{number}")
        served.take("drop", number, 1, "")
    assert len(served.overs()) == 10
    served.take("done", 1, 1)
    served.clock.advance(1.0)
    assert served.step() == [("delete", "long")]
    assert served.overs() == [["over", 1, 1, True]]


def test_a_message_that_its_worker_calls_uncertain_is_not_released(served: Served) -> None:
    served.receive(is_certain=False)
    assert not served.lease.is_exclusive
    served.take("release", 1, 1, 0, "failed")
    assert served.step() == []
    assert ["over", 1, 1, False] in served.said()


def test_a_delayed_receive_makes_the_lease_uncertain(served: Served) -> None:
    served.receive()
    receive = Receive(
        queue_url=QUEUE,
        message_id="m",
        receipt_handle="late",
        receive_count=2,
        hidden_for=30,
        sent_at=served.clock() - 40,
        arrived_at=served.clock(),
    )
    values = astuple(receive)
    served.take("received", 1, 1, None, "lapsed", values, astuple(TERMS), False)
    assert not served.lease.is_exclusive
    assert served.lease.handles == ("m",)


@pytest.mark.parametrize("goal", [Goal.HOLD, Goal.DELETE, Goal.RELEASE])
def test_a_lease_is_resumed_with_its_goal(served: Served, goal: Goal) -> None:
    lease = lease_of("m", expires_at=served.clock() + 20.0)
    lease.goal = goal
    served.resume(lease)
    expected = {Goal.HOLD: [], Goal.DELETE: [("delete", "m")], Goal.RELEASE: [("release", "m")]}
    assert served.step() == expected[goal]
    assert served.overs() == ([] if goal is Goal.HOLD else [["over", 1, 1, goal is Goal.DELETE]])


def test_a_release_that_may_have_been_sent_ends_without_a_second_call(served: Served) -> None:
    lease = lease_of("m", expires_at=served.clock() + 20.0)
    lease.goal = Goal.RELEASE
    served.resume(lease, was_releasing=True)
    assert served.step() == []
    said = served.said()
    assert ["over", 1, 1, False] in said
    kinds = [messages.read_event(each[2]).kind for each in said if each[0] == "event"]
    assert kinds == [EventKind.MESSAGE_LAPSING]


def test_a_release_that_comes_too_late_ends_when_it_is_resumed(served: Served) -> None:
    lease = lease_of("m", expires_at=served.clock() - 1.0)
    lease.goal = Goal.RELEASE
    served.resume(lease)
    assert served.overs() == [["over", 1, 1, False]]


def test_the_table_shows_calls_in_flight_and_ended_leases(served: Served) -> None:
    key = key_of("m")
    place = served.table.row(key)
    served.table.write(place, key, Record(Mark.HELD, receives=1))
    served.receive(place=place)
    served.take("release", 1, 1, 0, "failed")
    served.elsewhere.keeper.step()
    record = served.table.read(key)
    assert record.flags & Flag.RELEASING
    assert not record.flags & Flag.OVER
    served.elsewhere.calls.answer(0, [Outcome.DONE])
    record = served.table.read(key)
    assert (record.mark, record.receives) == (Mark.GIVEN_BACK, 1)
    assert record.flags & Flag.OVER
    assert not record.flags & Flag.RELEASING


def test_only_events_that_its_worker_needs_are_reported(served: Served) -> None:
    served.receive()
    served.take("started", 1, 1, 0.0, 4711)
    served.clock.advance(25.0)
    assert served.step() == [(Action.EXTEND.value, "m")]
    assert served.said() == []
    served.clock.advance(25.0)
    served.step([Outcome.LOST])
    (event,) = served.said()
    assert messages.read_event(event[2]).kind is EventKind.LEASE_LOST


@pytest.mark.parametrize(
    "message",
    [
        ["received", 1, 1, None, "no-receipt", [], [], True],
        ["received", 1, 1, None, "new", [], [], True],
        ["resume", 1, 1, None, False, None, [], "held", "ours", {"no": "field"}],
        ["resume", 1, 1, None, False, None, list(astuple(TERMS)), "no", "ours", {}],
    ],
)
def test_an_invalid_message_breaks_the_link(served: Served, message: list[Any]) -> None:
    with pytest.raises(BrokenLink):
        served.elsewhere.end.take(message)


def test_messages_that_are_not_about_leases_are_not_handled(served: Served) -> None:
    assert not served.elsewhere.end.take(["stop", 5.0])


@pytest.mark.parametrize("message", [["received", 1], ["done", 1], ["release", 1, 1], ["started"]])
def test_a_message_that_lacks_fields_is_not_ignored(served: Served, message: list[Any]) -> None:
    assert serving.is_about_leases(message)
    with pytest.raises(BrokenLink, match=f"unknown message: '{message[0]}'"):
        served.elsewhere.end.take_all([message])
