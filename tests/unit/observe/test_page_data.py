"""What the status page shows of a keeper: its leases, and what is remembered of its events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import DUE_LATER, Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.observe.measuring import MINUTES, Measurer
from celery_sqs_heartbeat.observe.page_data import (
    HAPPENINGS,
    MAX_LEASES,
    MAX_STOPPED,
    MAX_TASKS,
    PageData,
)
from celery_sqs_heartbeat.observe.watched import AFTERTIME, CAPACITY
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.observed import FIFO, QUEUE, Sqs
from tests.unit.observe.happening import event, one_of_each

OTHER = "https://sqs.eu-west-1.example/123456789012/media"
EXTENDED, RELEASED = EventKind.LEASE_EXTENDED, EventKind.MESSAGE_RELEASED
TERMS = LeaseTerms(visibility_timeout=60, threshold=20)
PHASES = ("in_flight", "running", "waiting", "pending_deletes", "pending_releases")


class Worker:
    """A keeper whose thread does not run, and the data of its status page, at 1000 s."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.keeper = ThreadKeeper(Sqs(), terms=TERMS, clock=self.clock)
        self.measurer = Measurer()
        self.measurer.watch(self.keeper)
        self.data = PageData(self.measurer, "celery@host")

    def receive(self, name: str, *, queue: str = QUEUE, task: str | None = "shop.pay") -> None:
        self.keeper.receive(queue, {"MessageId": name, "ReceiptHandle": name}, task=task)

    def receive_in_order(self, group: str, number: int, *, queue: str = FIFO) -> str:
        name = f"{group}-{number}"
        attributes = {"MessageGroupId": group, "SequenceNumber": str(number)}
        message = {"MessageId": name, "ReceiptHandle": name, "Attributes": attributes}
        self.keeper.receive(queue, message, terms=replace(TERMS, in_order=True))
        return name

    def note(self, *events: Event) -> None:
        for each in events:
            list(self.measurer.measure(each))
            self.data(each)

    def leases(self, *names: str) -> Any:
        """Return the page's data of leases, or these values of it."""
        payload = self.data.leases()
        return [payload[name] for name in names] if names else payload

    def stopped(self) -> list[str]:
        return [each["group"] for each in self.leases()["stopped_groups"]]

    def happenings(self) -> list[str]:
        """Return what happened, the latest first."""
        return [each["what"] for each in self.data.events()["happenings"]]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_lease_is_shown_with_everything_except_the_receipt_handle(worker: Worker) -> None:
    attributes = {"MessageGroupId": "A17", "SequenceNumber": "188"}
    message = {"MessageId": "m", "ReceiptHandle": "SECRET", "Attributes": attributes}
    worker.keeper.receive(QUEUE, message, task="shop.pay", task_id="t")
    worker.clock.advance(15)
    worker.clock.advance(5)
    worker.keeper.note_start("SECRET")
    (lease,) = worker.leases()["leases"]
    assert lease == {
        "queue": "orders",
        "queue_url": QUEUE,
        "message_id": "m",
        "task": "shop.pay",
        "task_id": "t",
        "receive_count": 1,
        "goal": "hold",
        "status": "owned",
        "held_for": 20,
        "received_ago": 20,
        "running_for": 0,
        "expires_in": 40,
        "visibility_timeout": 60,
        "threshold": 20,
        "ended_for": None,
        "extensions": 0,
        "attempts": 0,
        "group": "A17",
        "sequence_number": "188",
        "behind": False,
        "extended_ago": [],
    }
    worker.keeper.release("SECRET")
    worker.clock.advance(3)
    (lease,) = worker.leases()["leases"]
    assert (lease["goal"], lease["ended_for"], lease["running_for"]) == ("release", 3, 3)


def test_every_lease_is_in_one_of_four_phases(worker: Worker) -> None:
    for name in ("waiting", "waiting too", "running", "done", "released", "released at once"):
        worker.receive(name)
    for name in ("running", "done", "released"):
        worker.keeper.note_start(name)
    worker.keeper.done("done")
    worker.keeper.release("released")
    worker.keeper.release("released at once")
    assert worker.leases(*PHASES) == [6, 1, 2, 1, 2]


def test_the_totals_count_all_leases_and_each_list_those_it_leaves_out(worker: Worker) -> None:
    assert worker.leases(*PHASES, "oldest", "queues", "tasks") == [0, 0, 0, 0, 0, None, [], []]
    for number in range(MAX_TASKS + 2):
        worker.receive(str(number), queue=OTHER if number % 4 == 0 else QUEUE, task=str(number))
    worker.receive("of the last, too", task=str(MAX_TASKS + 1))
    worker.keeper.note_start("0")
    payload = worker.leases()
    assert [payload[name] for name in PHASES] == [503, 1, 502, 0, 0]
    assert (len(payload["leases"]), payload["leases_left_out"]) == (MAX_LEASES, 3)
    assert (len(payload["tasks"]), payload["tasks_left_out"]) == (MAX_TASKS, 2)
    assert [(each["queue"], each["in_flight"], each["running"]) for each in payload["queues"]] == [
        ("orders", 377, 0),
        ("media", 126, 1),
    ]
    assert (payload["tasks"][0]["task"], payload["tasks"][0]["in_flight"]) == ("501", 2)


def test_an_expired_lease_is_not_well_even_before_the_keeper_notes_it(worker: Worker) -> None:
    worker.receive("a", task=None)
    worker.clock.advance(10)
    worker.receive("b")
    assert worker.leases("oldest", "least_left", "not_well") == [10, 50, 0]
    worker.clock.advance(50)
    assert worker.leases("not_well") == [1]
    assert {each["task"]: each["not_well"] for each in worker.leases()["tasks"]} == {
        None: 1,
        "shop.pay": 0,
    }


def test_groups_and_the_messages_behind_are_counted(worker: Worker) -> None:
    worker.receive("of a standard queue")
    # Two digits and three: they are compared as numbers, not as text.
    for number in (100, 99, 101):
        worker.receive_in_order("A17", number)
    worker.receive_in_order("B4", 5)
    # A group of the same name on another queue.
    worker.receive_in_order("B4", 6, queue=f"{OTHER}.fifo")
    # It is behind until the delete of the first is confirmed.
    worker.keeper.done("A17-99")
    payload = worker.leases()
    assert [payload[name] for name in ("groups", "behind", "waiting")] == [3, 2, 5]
    assert {each["queue"]: (each["groups"], each["behind"]) for each in payload["queues"]} == {
        "orders": (0, 0),
        "orders.fifo": (2, 2),
        "media.fifo": (1, 0),
    }
    behind = {each["message_id"] for each in payload["leases"] if each["behind"]}
    assert behind == {"A17-100", "A17-101"}


def of_group(kind: EventKind, group: str = "A17", **values: Any) -> Event:
    return event(kind, queue_url=FIFO, group=group, **values)


def stop(group: str = "A17", **values: Any) -> Event:
    return of_group(RELEASED, group, stops_group=True, **{"visibility_timeout": 30, **values})


def test_a_stopped_group_is_shown_with_the_message_that_stopped_it_for_a_while(
    worker: Worker,
) -> None:
    worker.note(stop(receive_count=2, max_receive_count=5))
    worker.clock.advance(12)
    (group,) = worker.leases()["stopped_groups"]
    of_message = {"message_id": "m", "task": "shop.pay", "task_id": "t", "cause": "failed"}
    counts = {"receive_count": 2, "max_receive_count": 5, "ago": 12, "visible_in": 18}
    of_group = {"queue": "orders.fifo", "queue_url": FIFO, "group": "A17"}
    assert group == {**of_group, **of_message, **counts}
    hidden = worker.measurer.stopped.hidden
    assert (hidden(1029.9), hidden(1030.0)) == ({"orders.fifo": 1}, {})
    worker.clock.advance(18 + AFTERTIME)
    assert worker.stopped() == ["A17"]
    worker.clock.advance(0.1)
    assert worker.stopped() == []


LAPSING = EventKind.MESSAGE_LAPSING


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        # A message that is left to lapse stays hidden until its lease expires.
        ([of_group(LAPSING, stops_group=True, slack=12.0)], {"A17": 12}),
        ([of_group(LAPSING, stops_group=True, slack=-3.0)], {"A17": 0}),
        # Messages behind the first do not stop a group.
        ([of_group(RELEASED, cause="group stopped")], {}),
        # A group continues when a message of it is received.
        ([stop(), of_group(EventKind.MESSAGE_RECEIVED, "B4")], {"A17": 30}),
        ([stop(), of_group(EventKind.MESSAGE_RECEIVED)], {}),
        ([stop(), of_group(EventKind.MESSAGE_DELETED)], {}),
        # The last stop of a group counts.
        ([stop(), stop("B4"), stop(visibility_timeout=9)], {"A17": 9, "B4": 30}),
    ],
)
def test_a_group_is_stopped_by_its_first_message(
    worker: Worker, events: list[Event], shown: dict[str, float]
) -> None:
    worker.note(*events)
    stopped = worker.leases()["stopped_groups"]
    assert {each["group"]: each["visible_in"] for each in stopped} == shown
    assert list(shown) == [each["group"] for each in stopped]


def test_only_so_many_stopped_groups_are_remembered_and_listed(worker: Worker) -> None:
    worker.note(*(stop(str(number)) for number in range(CAPACITY + 1)))
    assert worker.stopped() == [str(CAPACITY - number) for number in range(MAX_STOPPED)]
    assert worker.leases("stopped_groups_left_out") == [CAPACITY - MAX_STOPPED]


def test_the_last_extensions_of_so_many_leases_are_remembered_until_they_end(
    worker: Worker,
) -> None:
    worker.receive("m")

    def extended_ago() -> list[float]:
        return list(worker.leases()["leases"][0]["extended_ago"])

    worker.note(*(event(EXTENDED, at=1000.0 - number) for number in reversed(range(20))))
    assert extended_ago() == [7, 6, 5, 4, 3, 2, 1, 0]
    worker.note(event(EventKind.MESSAGE_DELETED))
    assert extended_ago() == []
    worker.note(event(EXTENDED), *(event(EXTENDED, message_id=str(n)) for n in range(4_095)))
    assert extended_ago() == [0]
    worker.note(event(EXTENDED, message_id="one more"))
    assert extended_ago() == []


def test_the_last_releases_and_losses_are_listed_and_the_rest_counted(worker: Worker) -> None:
    worker.note(*one_of_each())
    # Parked messages do not displace failures.
    worker.note(*(event(RELEASED, cause=DUE_LATER) for _ in range(HAPPENINGS)))
    assert worker.happenings() == ["lapsed", "released", "capped", "lost", "expired"]
    # A lease that is given up after its expiry is not lost once more.
    worker.note(event(EventKind.LEASE_LOST, action=None, outcome=None))
    worker.note(event(EventKind.LEASE_LOST, outcome=Outcome.LOST))
    worker.note(*(event(RELEASED) for _ in range(HAPPENINGS - 1)))
    assert worker.happenings() == [*["released"] * (HAPPENINGS - 1), "lost"]
    assert worker.data.events()["happenings_left_out"] == 5


def test_calls_are_counted_once_in_the_minute_of_their_answer(worker: Worker) -> None:
    worker.note(
        event(EXTENDED, at=1200.0, message_id="a"),
        event(EXTENDED, at=1200.0, message_id="b"),
        event(EXTENDED, at=1259.9, call_number=2),
        event(EventKind.MESSAGE_DELETED, at=1260.0, call_number=3),
        event(EventKind.LEASE_EXPIRED, at=1261.0),
    )
    worker.clock.advance(325)
    minutes = worker.data.events()["calls_per_minute"]
    assert len(minutes) == MINUTES
    assert minutes[-3:] == [
        {"change_visibility": 2, "delete": 0},
        {"change_visibility": 0, "delete": 1},
        {"change_visibility": 0, "delete": 0},
    ]
    # Old minutes are forgotten.
    worker.note(event(EXTENDED, at=1260.0 + 60 * (MINUTES + 1), call_number=4))
    assert len(worker.measurer.calls_by_minute()) == 1
