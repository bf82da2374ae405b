"""A channel whose messages are leased: what its consumer gets, and the calls that SQS receives."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection, Consumer, Queue
from kombu.asynchronous import Hub, get_event_loop, set_event_loop

from celery_sqs_heartbeat.receiving import reception
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.long_polls import Poll
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.worker.shutdown import end_polls
from tests.support.faults import Answer, Body, Forward, deny, fail, first
from tests.support.held_polls import HeldPolls
from tests.support.insides import slots_taken
from tests.support.joined import Joined
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE, wait_until

OPTIONS = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}


class ChannelHarness:
    """A connection whose channels have leases, on its own queue."""

    def __init__(
        self,
        proxy: FaultProxy,
        *,
        options: dict[str, Any] | None = None,
        fifo: bool = False,
        concurrency: int = 0,
        **settings: Any,
    ) -> None:
        self.proxy = proxy
        self.name = f"q-{uuid.uuid4().hex[:12]}" + (".fifo" if fifo else "")
        self.client = proxy.client()
        attributes = {"VisibilityTimeout": "30", **({"FifoQueue": "true"} if fifo else {})}
        self.url = self.client.create_queue(QueueName=self.name, Attributes=attributes)["QueueUrl"]
        conf = {f"sqs_heartbeat_{name}": value for name, value in settings.items()}
        read = read_settings(conf.get)
        self.joined = joined = Joined(most_waiting=read.fifo_waiting, concurrency=concurrency)
        self.keeper, self.poll_clients = joined.keeper, joined.poll_clients
        attributes_of = BotoSqs(joined.clients, address=joined.clients.address).queue_attributes
        self.heartbeat = Heartbeat(
            keeper=joined.worker,
            settings=read,
            queues=QueueDirectory(attributes_of, lambda job: job()),
            clients=joined.clients,
        )
        bind(self.heartbeat)
        self.connection = Connection(
            proxy.broker_url,
            transport=Transport,
            transport_options={**OPTIONS, **(options or {})},
        )
        self.channel = self.connection.channel()

    def publish(self, *bodies: str, **properties: str) -> None:
        producer = self.connection.Producer()
        for body in bodies:
            headers = {"task": "t", "id": body}
            producer.publish({"body": body}, routing_key=self.name, headers=headers, **properties)

    @property
    def polls(self) -> list[Poll]:
        """The open polls."""
        reception = self.joined.reception
        with contextlib.ExitStack() as locks:
            # Their threads may be between two polls.
            for receiver in reception._receivers.values():
                locks.enter_context(receiver.receiving._lock)
            return reception.polls

    def consume(self, on_message: Callable[[Any], None]) -> Consumer:
        queue = Queue(self.name, channel=self.channel)
        consumer = Consumer(self.channel, [queue], on_message=on_message)
        consumer.consume()
        return consumer

    def drain(self, timeout: float = 0.0) -> None:
        """Deliver the messages that have arrived, or that arrive within so many seconds."""
        with contextlib.suppress(socket.timeout):
            self.connection.drain_events(timeout=timeout)

    def drain_until(self, condition: Callable[[], Any]) -> None:
        """Deliver messages until the condition holds."""

        def holds() -> bool:
            if not condition():
                self.drain(timeout=0.1)
            return bool(condition())

        wait_until(holds)

    def look(self) -> None:
        """Do what a worker and its keeper do every second."""
        self.heartbeat.look()
        self.joined.look()

    def batches(self) -> list[int]:
        """Return the number of messages of each poll that returned any."""
        answers = [call.answer or {} for call in self.proxy.calls("ReceiveMessage")]
        return [len(answer["Messages"]) for answer in answers if answer.get("Messages")]

    def make_visible(self, message: Any) -> None:
        """Do what an expiry does: anyone may receive the message."""
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message.delivery_tag, VisibilityTimeout=0
        )

    def counts(self) -> tuple[int, int]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return tuple(int(answer["Attributes"][name]) for name in names)  # type: ignore[return-value]

    def close(self) -> None:
        self.connection.release()
        self.joined.close()
        bind(None)


@pytest.fixture
def new_desk(proxy: FaultProxy) -> Iterator[Callable[..., ChannelHarness]]:
    desks: list[ChannelHarness] = []

    def make(**settings: Any) -> ChannelHarness:
        desks.append(ChannelHarness(proxy, **settings))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An event loop that the channels of the test use."""
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    yield hub
    set_event_loop(before)
    hub.close()


@pytest.fixture
def desk(new_desk: Callable[..., ChannelHarness]) -> ChannelHarness:
    return new_desk()


def test_a_batch_is_leased_before_any_of_it_is_delivered_and_counts_from_its_last_try(
    desk: ChannelHarness,
) -> None:
    failed: list[float] = []
    refuse = fail()

    def note_and_fail(body: Body, forward: Forward) -> Answer:
        failed.append(desk.keeper.now())
        return refuse(body, forward)

    # boto3 repeats the receive.
    desk.proxy.rule("ReceiveMessage", first(2, note_and_fail))
    desk.publish("a", "b", "c")
    held: list[int] = []
    leases: list[Any] = []

    def take(message: Any) -> None:
        held.append(len(desk.keeper))
        leases.append(desk.keeper.find(message.delivery_tag))

    desk.consume(take)
    desk.drain_until(lambda: len(held) == 3)
    assert held[0] >= desk.batches()[0]
    assert held[-1] == sum(desk.batches()) == 3
    assert min(lease.received_at for lease in leases) > failed[1]
    assert leases[0].receive_count == 1
    assert leases[0].sent_time <= leases[0].first_received_time


def test_an_ack_deletes_in_a_batch_and_what_was_not_acked_is_released_at_the_end(
    desk: ChannelHarness,
) -> None:
    desk.publish("a", "b", "c")
    taken: list[Any] = []
    desk.consume(taken.append)
    desk.drain_until(lambda: len(taken) == 3)
    assert desk.counts() == (0, 3)
    for message in taken[:2]:
        message.ack()
    assert slots_taken(desk.channel) == {taken[2].delivery_tag}
    assert desk.keeper.flush(PATIENCE)
    desk.channel.close()
    # Not before the channel's last poll has ended, which would receive it.
    wait_until(lambda: desk.counts() == (1, 0))
    wait_until(lambda: len(desk.keeper) == 0)
    assert desk.proxy.calls("DeleteMessage") == []


def test_the_message_of_a_failed_task_is_released_even_if_it_is_just_received_again(
    desk: ChannelHarness,
) -> None:
    # Found by the soak: the redelivery made the keeper forget the failure. Without a dead-letter
    # queue, a message that is rejected on purpose is deleted.
    desk.publish("a")
    taken: list[Any] = []
    desk.consume(taken.append)
    desk.drain_until(lambda: taken)
    desk.make_visible(taken[0])
    desk.drain_until(lambda: sum(desk.batches()) == 2)
    desk.channel.reject(taken[0].delivery_tag, requeue=True)
    desk.channel.basic_reject(taken[0].delivery_tag, requeue=False)
    desk.keeper.flush()
    assert not desk.proxy.calls("DeleteMessageBatch")
    assert sum(desk.counts()) == 1


@pytest.mark.parametrize("is_got", [True, False], ids=["Queue.get", "a no-ack queue"])
def test_messages_that_no_one_acks_are_not_leased(desk: ChannelHarness, *, is_got: bool) -> None:
    desk.publish("a")
    queue = Queue(desk.name, channel=desk.channel)
    seen: list[Any] = []
    if is_got:
        seen.append(queue.get())
    else:
        # kombu deletes on its event loop, which does not run here.
        desk.channel.asynsqs = lambda queue: SimpleNamespace(delete_message=lambda *args: None)
        Consumer(desk.channel, [queue], on_message=seen.append).consume(no_ack=True)
    desk.drain_until(lambda: seen)
    assert len(desk.keeper) == 0
    if is_got:
        seen[0].ack()
        assert desk.counts() == (0, 0)


def test_an_event_loop_receives_more_while_messages_wait_for_others_of_their_group(
    new_desk: Callable[..., ChannelHarness], hub: Hub
) -> None:
    desk = new_desk(fifo=True, fifo_batch=10)
    desk.publish("a", "a then", "a last", MessageGroupId="A")
    desk.publish("b", MessageGroupId="B")
    taken: list[str] = []
    desk.channel.basic_qos(0, 3, False)
    desk.consume(lambda message: taken.append(message.headers["id"]))
    loop = hub.create_loop()
    wait_until(lambda: next(loop) or len(taken) == 2)
    # Three messages of group A took all of the room, until only one of them could be delivered.
    assert desk.batches() == [3, 1]
    assert taken == ["a", "b"]


def test_without_permission_to_count_its_messages_a_queue_is_declared(
    desk: ChannelHarness,
) -> None:
    desk.proxy.rule("GetQueueAttributes", deny())
    assert Queue(desk.name, channel=desk.channel).queue_declare().queue == desk.name


def test_without_a_heartbeat_the_transport_is_kombus_own(proxy: FaultProxy) -> None:
    name = f"q-{uuid.uuid4().hex[:12]}"
    with Connection(proxy.broker_url, transport=Transport, transport_options=OPTIONS) as connection:
        queue = connection.SimpleQueue(name)
        queue.put("x")
        queue.get(timeout=PATIENCE).ack()
        queue.close()
    assert len(proxy.calls("DeleteMessage")) == 1
    assert proxy.calls("DeleteMessageBatch") == []


#: How receiving ends.
ENDS: dict[str, Callable[[ChannelHarness, Consumer], object]] = {
    "the consumer is cancelled": lambda desk, consumer: consumer.cancel(),
    "the channel is closed": lambda desk, consumer: desk.channel.close(),
    "the worker ends": lambda desk, consumer: end_polls(desk.heartbeat),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("moment", ["its poll is not sent", "its poll is open", "it has arrived"])
def test_a_message_that_has_not_reached_its_consumer_by_its_end_is_released(
    new_desk: Callable[..., ChannelHarness],
    end: Callable[[ChannelHarness, Consumer], object],
    moment: str,
) -> None:
    # No message becomes visible again by its timeout.
    desk = new_desk(visibility_timeout=600)
    polls, is_begun, has_ended = HeldPolls(desk.proxy), threading.Event(), threading.Event()
    got: list[Any] = []

    def renew_credentials() -> None:
        is_begun.set()
        has_ended.wait(PATIENCE)

    desk.publish("a")
    if moment == "its poll is not sent":
        # On EKS that is a call to STS.
        desk.poll_clients.prepare = renew_credentials
    consumer = desk.consume(got.append)
    desk.drain_until(lambda: polls.open or is_begun.is_set())
    if moment == "it has arrived":
        polls.open[0].forward()
        wait_until(lambda: len(desk.keeper))
    end(desk, consumer)
    has_ended.set()
    if moment == "its poll is open":
        polls.open[0].forward()
    polls.end()
    desk.joined.join()
    # What was handed over is released by the worker.
    desk.drain()
    assert desk.keeper.flush(PATIENCE)
    is_sent = moment != "its poll is not sent"
    assert bool(desk.proxy.calls("ReceiveMessage")) is is_sent
    assert sum(desk.batches()) == is_sent
    assert (got, desk.counts()) == ([], (1, 0))
    assert len(desk.keeper) == 0


@pytest.mark.parametrize("brings_any", [True, False])
def test_the_last_polls_are_read_even_if_the_signal_interrupted_the_writing_of_a_log_line(
    desk: ChannelHarness,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    brings_any: bool,
) -> None:
    monkeypatch.setattr(reception, "READ_GRACE", PATIENCE)
    caplog.set_level(logging.INFO, logger="celery_sqs_heartbeat")
    polls, released, release = HeldPolls(desk.proxy), threading.Event(), desk.keeper.release

    def note(*args: Any, **options: Any) -> bool:
        known = release(*args, **options)
        released.set()
        return known

    monkeypatch.setattr(desk.keeper, "release", note)
    desk.publish(*["a"][:brings_any])
    desk.consume(lambda message: None)
    desk.drain_until(lambda: polls.open)
    with caplog.handler.lock:  # type: ignore[union-attr]
        end_polls(desk.heartbeat)
        polls.open[0].forward()
        assert released.wait(PATIENCE) if brings_any else desk.joined.reception.join()
    polls.end()
    desk.joined.join()
    assert "receiving ends" in caplog.text
    assert ("released 1 message received" in caplog.text) is brings_any
