"""Message groups on real workers, as AWS's framework for .NET and Spring Cloud AWS test them.

Sources: aws/aws-dotnet-messaging, FifoSubscriberTests.cs and LambdaTests.cs; awspring/
spring-cloud-aws, OrderedMessageListeningSinkTests. The others of their scenarios are in
tests/conformance.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from celery_sqs_heartbeat.testing import SimulatedServer
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from tests.acceptance.foreign import envelope
from tests.acceptance.ordered import Orders, overlaps, steps
from tests.acceptance.test_fifo_order import new_orders  # noqa: F401
from tests.support.waiting import wait_until

NewOrders = Callable[..., Orders]
BAD = {
    "text": "hello",
    "JSON object": '{"order": 17}',
    "broken base64": json.dumps(envelope(body="!!!a")),
}


@pytest.mark.parametrize(
    ("groups", "each", "processes"), [(1, 10, 1), (3, 3, 10), (5, 5, 5), (5, 10, 5)]
)
def test_each_message_runs_once_and_each_group_in_order(
    new_orders: NewOrders,  # noqa: F811
    groups: int,
    each: int,
    processes: int,
) -> None:
    """FifoSubscriberTests.SendAndReceiveMessages_MultipleMessageGroups: each takes 0 to 1 s."""
    orders = new_orders()
    durations = random.Random(3)
    names = [f"g{number}" for number in range(groups)]
    for group, number in steps(names, each):
        orders.send(group, number, durations.random())
    orders.worker("w1", "--concurrency", str(processes))
    orders.wait_for_ends(groups * each)
    assert orders.ends() == {name: list(range(each)) for name in names}
    assert overlaps(orders.lines()) == []
    assert len(orders.lines()) == 2 * groups * each
    orders.wait_until_empty()


@pytest.mark.parametrize(("pool", "processes"), [("prefork", 1), ("prefork", 5), ("threads", 5)])
def test_later_messages_wait_although_their_tasks_are_faster(
    new_orders: NewOrders,  # noqa: F811
    pool: str,
    processes: int,
) -> None:
    """LambdaTests.FifoMessageHandling_SingleMessageGroup: 3, 2 and 1 s."""
    orders = new_orders()
    for number, seconds in enumerate((3.0, 2.0, 1.0)):
        orders.send("a", number, seconds)
    orders.worker("w1", "--pool", pool, "--concurrency", str(processes))
    orders.wait_for_ends(3)
    assert [(line.number, line.what) for line in orders.lines()] == [
        (number, what) for number in range(3) for what in ("start", "end")
    ]


def test_a_long_row_does_not_grow_the_stack(new_orders: NewOrders) -> None:  # noqa: F811
    """OrderedMessageListeningSinkTests.shouldEmitInOrder. Solo runs tasks within a delivery."""
    count = 200
    orders = new_orders()
    for number in range(count):
        orders.send("a", number, task="measure")
    orders.worker("w1", "--pool", "solo")
    orders.wait_for_ends(count, timeout=120.0)
    assert orders.ends() == {"a": list(range(count))}
    whats = [line.what.partition("-") for line in orders.lines()]
    depths = [int(depth) for what, _, depth in whats if what == "depth"]
    assert len(depths) == count
    # A delivery has several call paths, but none contains a frame of the previous message.
    assert max(depths) - min(depths) < count / 4
    orders.wait_until_empty()


@pytest.mark.parametrize("kind", ["text", "JSON object", "broken base64", "unregistered"])
def test_a_group_continues_when_a_message_that_can_not_run_is_a_dead_letter(
    new_orders: NewOrders,  # noqa: F811
    kind: str,
) -> None:
    """FifoSubscriberTests.MessagesWithFrameworkandWithout, MessagesWithoutHandlers.

    There a group continues without a message that can't be decoded.
    """
    orders = new_orders()
    dead = orders.with_dead_letters(1)
    for number in range(2):
        orders.send("a", number)
    bad = send_bad(orders, kind)
    for number in range(2, 4):
        orders.send("a", number)
    orders.send("b", 0)
    worker = orders.worker("w1", "--concurrency", "4")
    # What Celery rejects stays hidden until its visibility timeout ends.
    if kind != "broken base64":
        wait_until(lambda: message(orders, bad).receive_count == 1)
        # One that is sent now is received later.
        orders.send("b", 1)
        orders.wait_for_ends(4)
        assert orders.ends() == {"a": [0, 1], "b": [0, 1]}
        orders.client.change_message_visibility(
            QueueUrl=orders.url, ReceiptHandle=message(orders, bad).handle, VisibilityTimeout=0
        )
    else:
        orders.send("b", 1)
    orders.wait_for_ends(6)
    orders.wait_until_empty()
    assert orders.ends() == {"a": [0, 1, 2, 3], "b": [0, 1]}
    found = orders.client.receive_message(QueueUrl=dead, MaxNumberOfMessages=10)["Messages"]
    assert [each["MessageId"] for each in found] == [bad]
    assert worker.process.exit_code is None


@pytest.mark.parametrize("kind", ["text", "unregistered"])
def test_a_group_continues_when_a_message_that_can_not_run_is_deleted(
    new_orders: NewOrders,  # noqa: F811
    kind: str,
) -> None:
    """The same without a dead-letter queue: kombu deletes what Celery rejects."""
    orders = new_orders()
    orders.send("a", 0)
    send_bad(orders, kind)
    orders.send("a", 1)
    orders.worker("w1", "--concurrency", "4")
    orders.wait_for_ends(2)
    assert orders.ends() == {"a": [0, 1]}
    orders.wait_until_empty()


def test_a_task_that_has_expired_by_its_turn_is_not_run_and_the_next_is(
    new_orders: NewOrders,  # noqa: F811
) -> None:
    """Neither tests it: Celery judges when a message is delivered, not when it is received."""
    orders = new_orders()
    orders.send("a", 0, 3.0)
    orders.send("a", 1, expires=datetime.now(timezone.utc) + timedelta(seconds=2))
    orders.send("a", 2)
    orders.worker("w1", "--concurrency", "4")
    orders.wait_for_ends(2)
    orders.wait_until_empty()
    assert [(line.number, line.what) for line in orders.lines()] == [
        (number, what) for number in (0, 2) for what in ("start", "end")
    ]


def send_bad(orders: Orders, kind: str) -> str:
    """Send a message to group `a` that the worker can't run; return its id."""
    if kind != "unregistered":
        sent = orders.client.send_message(
            QueueUrl=orders.url,
            MessageBody=BAD[kind],
            MessageGroupId="a",
            MessageDeduplicationId=kind.replace(" ", "-"),
        )
        return str(sent["MessageId"])
    before = set(messages(orders))
    orders.send("a", 99, task="no_such_task")
    (new,) = set(messages(orders)) - before
    return new


def messages(orders: Orders) -> dict[str, SimulatedMessage]:
    """Return the messages in the queue as SQS has them, by their ids."""
    server = orders.server
    assert isinstance(server, SimulatedServer)
    return server.sqs.queues[orders.queue].messages


def message(orders: Orders, message_id: str) -> SimulatedMessage:
    """Return one of them."""
    return messages(orders)[message_id]
