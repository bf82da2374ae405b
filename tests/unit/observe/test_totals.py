"""The totals of the status page count all leases, even those that no list shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.observe.page_data import (
    HAPPENINGS,
    MAX_LEASES,
    MAX_STOPPED,
    MAX_TASKS,
    PageData,
)
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.observed import FIFO, IN_ORDER, QUEUE, Sqs
from tests.unit.observe.happening import event

OTHER = "https://sqs.eu-west-1.example/123456789012/media"


class Worker:
    """A keeper whose thread does not run, and the data of its status page."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.keeper = ThreadKeeper(Sqs(), terms=LeaseTerms.of(60), clock=self.clock)
        self.data = PageData("celery@host")
        self.data.watch(self.keeper)

    def receive_in_order(self, group: str, number: int, *, queue: str = FIFO) -> str:
        name = f"{group}-{number}"
        attributes = {"MessageGroupId": group, "SequenceNumber": str(number)}
        message = {"MessageId": name, "ReceiptHandle": name, "Attributes": attributes}
        self.keeper.receive(queue, message, task="shop.pay", terms=IN_ORDER)
        return name

    def receive(self, name: str, *, queue: str = QUEUE, task: str | None = "shop.pay") -> None:
        self.keeper.receive(queue, {"MessageId": name, "ReceiptHandle": name}, task=task)

    def payload(self) -> dict[str, Any]:
        return dict(self.data.leases())


@pytest.fixture
def worker() -> Worker:
    return Worker()


def counts(payload: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(payload[name] for name in names)


PHASES = ("in_flight", "running", "waiting", "pending_deletes", "pending_releases")


def test_every_lease_is_in_one_of_four_phases(worker: Worker) -> None:
    for name in ("waiting", "waiting too", "running", "done", "released", "released at once"):
        worker.receive(name)
    for name in ("running", "done", "released"):
        worker.keeper.note_start(name)
    worker.keeper.done("done")
    worker.keeper.release("released")
    worker.keeper.release("released at once")
    assert counts(worker.payload(), *PHASES) == (6, 1, 2, 1, 2)


def test_the_totals_count_all_leases_and_the_list_counts_those_left_out(worker: Worker) -> None:
    for number in range(2_000):
        name, is_media = str(number), number % 4 == 0
        worker.receive(name, queue=OTHER if is_media else QUEUE, task=f"task.{number % 2}")
        if number < 16:
            worker.keeper.note_start(name)
    payload = worker.payload()
    assert counts(payload, *PHASES) == (2_000, 16, 1_984, 0, 0)
    assert (len(payload["leases"]), payload["leases_left_out"]) == (MAX_LEASES, 1_500)
    assert [counts(each, "queue", *PHASES[:3]) for each in payload["queues"]] == [
        ("orders", 1_500, 12, 1_488),
        ("media", 500, 4, 496),
    ]
    assert sorted(counts(each, "queue", "task", *PHASES[:3]) for each in payload["tasks"]) == [
        ("media", "task.0", 500, 4, 496),
        ("orders", "task.0", 500, 4, 496),
        ("orders", "task.1", 1_000, 8, 992),
    ]
    assert payload["tasks_left_out"] == 0


def test_the_list_of_tasks_counts_those_left_out(worker: Worker) -> None:
    for number in range(MAX_TASKS + 2):
        worker.receive(str(number), task=str(number))
    worker.receive("of the last, too", task=str(MAX_TASKS + 1))
    payload = worker.payload()
    assert (len(payload["tasks"]), payload["tasks_left_out"]) == (MAX_TASKS, 2)
    assert counts(payload["tasks"][0], "task", "in_flight") == (str(MAX_TASKS + 1), 2)
    assert counts(payload["queues"][0], "in_flight") == (MAX_TASKS + 3,)


def test_groups_and_the_messages_behind_are_counted(worker: Worker) -> None:
    worker.receive("of a standard queue")
    # Two digits and three: they are compared as numbers, not as text.
    for number in (100, 99, 101):
        worker.receive_in_order("A17", number)
    worker.receive_in_order("B4", 5)
    # A group of the same name on another queue.
    worker.receive_in_order("B4", 6, queue=f"{OTHER}.fifo")
    payload = worker.payload()
    assert counts(payload, "groups", "behind", "waiting") == (3, 2, 6)
    assert {each["queue"]: counts(each, "groups", "behind") for each in payload["queues"]} == {
        "orders": (0, 0),
        "orders.fifo": (2, 2),
        "media.fifo": (1, 0),
    }
    behind = {each["message_id"] for each in payload["leases"] if each["behind"]}
    assert behind == {"A17-100", "A17-101"}


def test_a_message_waits_until_the_delete_before_it_is_confirmed(worker: Worker) -> None:
    first = worker.receive_in_order("A17", 1)
    worker.receive_in_order("A17", 2)
    worker.keeper.done(first)
    assert counts(worker.payload(), "groups", "behind", "waiting") == (1, 1, 1)


def test_a_stopped_group_is_shown_with_the_message_that_stopped_it(worker: Worker) -> None:
    worker.data(
        event(
            EventKind.MESSAGE_RELEASED,
            at=worker.clock(),
            queue_url=FIFO,
            group="A17",
            stops_group=True,
            visibility_timeout=30,
            receive_count=2,
            max_receive_count=5,
        )
    )
    worker.clock.advance(12)
    payload = worker.payload()
    assert payload["stopped_groups"] == [
        {
            "queue": "orders.fifo",
            "queue_url": FIFO,
            "group": "A17",
            "message_id": "m",
            "task": "shop.pay",
            "task_id": "t",
            "receive_count": 2,
            "max_receive_count": 5,
            "cause": "failed",
            "ago": 12,
            "visible_in": 18,
        }
    ]
    for number in range(MAX_STOPPED + 2):
        worker.data(
            event(
                EventKind.MESSAGE_RELEASED,
                at=worker.clock(),
                queue_url=FIFO,
                group=str(number),
                stops_group=True,
            )
        )
    payload = worker.payload()
    assert payload["stopped_groups"][0]["group"] == str(MAX_STOPPED + 1)
    assert (len(payload["stopped_groups"]), payload["stopped_groups_left_out"]) == (MAX_STOPPED, 3)


def test_the_times_are_those_of_the_oldest_lease_and_of_the_next_to_expire(worker: Worker) -> None:
    worker.receive("a")
    worker.clock.advance(10)
    worker.receive("b")
    assert counts(worker.payload(), "oldest", "least_left", "not_well") == (10, 50, 0)


def test_an_expired_lease_is_not_well_even_before_the_keeper_notes_it(worker: Worker) -> None:
    worker.receive("a", task=None)
    worker.clock.advance(60)
    worker.receive("b")
    payload = worker.payload()
    assert payload["not_well"] == 1
    assert [counts(each, "task", "not_well") for each in payload["tasks"]] == [
        (None, 1),
        ("shop.pay", 0),
    ]


def test_without_leases_there_are_no_times(worker: Worker) -> None:
    payload = worker.payload()
    assert counts(payload, *PHASES) == (0, 0, 0, 0, 0)
    assert counts(payload, "oldest", "least_left", "queues", "tasks") == (None, None, [], [])


def test_the_list_of_releases_and_losses_counts_those_left_out(worker: Worker) -> None:
    for _ in range(HAPPENINGS):
        worker.data(event(EventKind.LEASE_EXPIRED))
    assert worker.data.events()["happenings_left_out"] == 0
    for _ in range(3):
        worker.data(event(EventKind.LEASE_EXPIRED))
    payload = worker.data.events()
    assert (len(payload["happenings"]), payload["happenings_left_out"]) == (HAPPENINGS, 3)
