"""The keeper hands messages over to its worker, and handles the worker's orders about receiving."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link import messages
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.support.linked import Linked, message_of

QUEUE = "https://q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
#: Bytes that no socket takes at once.
LARGE = 1 << 20


class Side(Linked):
    """A worker and its keeper, which receives messages."""

    def __init__(self) -> None:
        super().__init__(jitter=1.0)

    def receive(self, *names: str, size: int = 1) -> None:  # type: ignore[override]
        for name in names:
            message = {**message_of(name, name, 1), "Body": "b" * size}
            self.elsewhere.receive(QUEUE, message, TERMS, 30, 0.0)

    def said(self) -> list[list[Any]]:
        said = self.elsewhere.outbox.messages
        return [[kind, messages.read_lease(fields).receipt_handle] for kind, fields in said]

    def known(self) -> list[str]:
        return [view.message_id for view in self.worker.snapshot()]


@pytest.fixture
def side() -> Side:
    return Side()


def test_messages_that_the_socket_takes_are_handed_over(side: Side) -> None:
    side.receive("a", "b")
    side.elsewhere.deliver()
    assert side.said() == []
    side.worker.pull()
    assert side.known() == ["a", "b"]


def test_the_handles_of_messages_that_are_still_on_their_way_are_told(side: Side) -> None:
    side.receive("a", "b", size=LARGE)
    side.elsewhere.deliver()
    assert side.said() == [["kept", "a"], ["kept", "b"]]
    side.hear()
    assert len(side.holdings._by_name.values()) == 2  # type: ignore[arg-type]
    while len(side.known()) < 2:
        side.worker.pull()
    # They are held as any other.
    assert side.known() == ["a", "b"]
    assert len(side.holdings._by_name.values()) == 2  # type: ignore[arg-type]


def test_what_was_on_its_way_when_a_keeper_died_is_released_by_the_next(side: Side) -> None:
    side.receive("a", "b", size=LARGE)
    side.elsewhere.deliver()
    dead = side.elsewhere.outlet
    with dead._lock:
        dead._packets.clear()
    side.die(1000)
    side.start()
    side.elsewhere.take()
    side.elsewhere.keeper.step()
    ((call, _),) = side.elsewhere.calls.out
    assert sorted((each.action.value, each.receipt_handle) for each in call.entries) == [
        ("release", "a"),
        ("release", "b"),
    ]
    assert side.known() == []
    # What is handed over by the next one arrives.
    side.receive("c")
    side.elsewhere.deliver()
    side.worker.pull()
    assert side.known() == ["c"]


def test_all_that_a_dead_keeper_had_handed_over_is_held_however_large(side: Side) -> None:
    """Otherwise it would arrive later, when no keeper knows it."""
    side.elsewhere.outlet._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    side.receive("a", size=LARGE)
    side.elsewhere.deliver()
    if side.said():
        pytest.skip("the system's sockets do not take as much")
    side.worker.detach()
    side.start()
    assert side.known() == ["a"]


def test_the_handles_of_messages_that_wait_are_told(side: Side) -> None:
    side.receive("a")
    side.elsewhere.keep()
    assert side.said() == [["kept", "a"]]
    side.hear()
    assert side.known() == []


def test_a_message_that_has_ended_is_neither_handed_over_nor_told(side: Side) -> None:
    side.receive("a", "b")
    side.elsewhere.keeper.let_expire("a")
    side.elsewhere.outbox.messages.clear()
    waiting = list(side.elsewhere.waiting)
    assert side.elsewhere.leases.deliver(1, waiting) == 1
    side.elsewhere.leases.keep(waiting)
    assert side.said() == [["kept", "b"]]
    side.worker.pull()
    assert side.known() == ["b"]


class Reception:
    """Notes the orders."""

    def __init__(self) -> None:
        self.orders: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.orders.append((name, *given))


def test_orders_about_receiving_are_handled(side: Side) -> None:
    end, reception = side.elsewhere.end, Reception()
    end._reception = reception  # type: ignore[assignment]
    queue = ConsumedQueue(name="q", url="q", lease_url="q", terms=TERMS)
    kind, channel, plain = messages.consume(3, [queue])
    assert end.take([kind, channel, plain])
    for order in (["cancel", 3, "q"], ["close", 3], ["end"]):
        assert end.take(order)
    consumed, *others = reception.orders
    assert (consumed[0], consumed[1], list(consumed[2])) == ("consume", 3, [queue])
    assert others == [("cancel", 3, "q"), ("close", 3), ("end",)]


def again(side: Side, poll: float = 0.0, *, count: int = 2) -> ReceivedAs:
    """Have the keeper receive message "a" again."""
    message = message_of("a", f"a{count}", count)
    return side.elsewhere.receive(QUEUE, message, TERMS, 30, poll)


def test_a_message_whose_task_succeeded_as_it_came_again_is_deleted_and_not_run(side: Side) -> None:
    arrived: list[Any] = []
    side.receive("a")
    side.elsewhere.deliver()
    side.worker.pull()
    side.worker.on_arrived = arrived.extend
    side.elsewhere.keeper.let_expire("a")
    assert again(side) is ReceivedAs.NEW
    side.elsewhere.deliver()
    side.worker.done("a")
    side.worker.pull()
    side.elsewhere.take()
    lease = side.elsewhere.keeper.find("a2")
    assert lease is not None
    assert (arrived, lease.goal) == ([], Goal.DELETE)


def test_a_message_that_comes_again_before_its_end_is_reported_is_known_only_once(
    side: Side,
) -> None:
    side.receive("a")
    side.elsewhere.deliver()
    side.worker.pull()
    side.worker.release("a")
    side.elsewhere.keeper.let_expire("a")
    again(side)
    side.elsewhere.deliver()
    side.worker.pull()
    assert side.worker.find("a") is None
    assert side.worker.find("a2") is not None
    assert side.known() == ["a"]


def test_an_older_receive_of_a_message_that_is_being_released_is_not_run(side: Side) -> None:
    again(side)
    side.elsewhere.keeper.release("a2")
    assert again(side, 5.0, count=1) is ReceivedAs.LAPSED


def test_a_message_that_has_ended_on_its_way_does_not_arrive(side: Side) -> None:
    arrived: list[Any] = []
    side.worker.on_arrived = arrived.extend
    side.receive("a")
    side.elsewhere.deliver()
    side.elsewhere.keeper.let_expire("a")
    side.worker.pull()
    assert (arrived, side.known()) == ([], [])
