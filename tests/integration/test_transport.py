"""The transport alone: what a consumer sees, and the calls that SQS receives."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kombu import Connection, Consumer, Queue
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from kombu.transport import SQS

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.receiving.receiver import ends_at
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.long_polls import Poll
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.transport.channel import Channel
from celery_sqs_heartbeat.worker.shutdown import end_polls
from tests.support.answers import Answer, Body
from tests.support.faults import Effect, Forward, deny, fail, first, forward_after, never_answer
from tests.support.joined import Joined
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE, wait_until


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
            transport_options={
                "region": "us-east-1",
                "is_secure": False,
                "wait_time_seconds": 1,
                **(options or {}),
            },
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

    def consume(self, on_message: Callable[[Any], None], **options: Any) -> Consumer:
        queue = Queue(self.name, channel=self.channel)
        consumer = Consumer(self.channel, [queue], on_message=on_message, **options)
        consumer.consume()
        return consumer

    def drain(self, timeout: float = 0.0) -> None:
        """Deliver the messages that have arrived, or that arrive within so many seconds."""
        with contextlib.suppress(socket.timeout):
            self.connection.drain_events(timeout=timeout)

    def open_poll(self, on_message: Callable[[Any], None] = lambda message: None) -> Poll:
        """Consume, and return the poll when the proxy has it."""
        polls = len(self.proxy.calls("ReceiveMessage"))
        self.consume(on_message)
        self.drain()
        wait_until(lambda: len(self.proxy.calls("ReceiveMessage")) > polls)
        poll: Poll
        (poll,) = self.polls
        return poll

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

    def work_until(self, condition: Callable[[], Any]) -> None:
        """Do the same as a worker, which looks for room every second."""
        self.drain_until(lambda: self.look() or condition())  # type: ignore[func-returns-value]

    def drain_polls(self, count: int = 2) -> None:
        """Deliver the messages of `count` polls. Messages missing by then will not arrive."""
        polls = len(self.proxy.calls("ReceiveMessage"))
        self.drain_until(lambda: len(self.proxy.calls("ReceiveMessage")) >= polls + count)
        self.drain()

    def is_polling(self) -> bool:
        """Return whether a poll is open after each queue was polled that there is room for."""
        before = self.polls
        self.channel.feed.fill()
        self.joined.settle()
        self.joined.look()
        return bool(before or self.polls)

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


def answer_after(event: threading.Event) -> Effect:
    """Send each answer after the event. The server has done the work by then."""

    def effect(body: Body, forward: Forward) -> Answer:
        answer = forward(body)
        event.wait(PATIENCE)
        return answer

    return effect


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


def test_kombu_makes_the_clients_of_our_channel() -> None:
    # If it were overridden, kombu would not make a client with short timeouts for a shutdown.
    assert Channel.new_sqs_client is SQS.Channel.new_sqs_client


def test_a_batch_is_leased_before_any_of_it_is_delivered(desk: ChannelHarness) -> None:
    desk.publish("a", "b", "c")
    held: list[int] = []
    desk.consume(lambda message: held.append(len(desk.keeper)))
    desk.drain_until(lambda: len(held) == 3)
    assert held[0] >= desk.batches()[0]
    assert held[-1] == sum(desk.batches()) == 3


def test_the_rest_of_a_batch_is_leased_even_if_one_message_cannot_be_read(
    new_desk: Callable[..., ChannelHarness], caplog: pytest.LogCaptureFixture
) -> None:
    # The message is not received again during the test.
    desk = new_desk(release_delay=PATIENCE)
    desk.publish("a", "b", "c")
    held: list[int] = []

    def damage(body: Body, forward: Forward) -> Answer:
        answer = forward(body).payload
        del answer["Messages"][0]["Body"]
        return Answer.of(answer)

    desk.proxy.rule("ReceiveMessage", first(1, damage))
    desk.consume(lambda message: held.append(len(desk.keeper)))
    desk.drain_until(lambda: len(held) == 2)
    assert desk.batches()[0] > 1
    assert sum(lease.goal is Goal.HOLD for lease in desk.keeper.leases()) == 2
    assert "can't be delivered, and is released" in caplog.text


def test_an_error_amid_an_answer_leaves_none_of_its_messages_leased(
    desk: ChannelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, calls = desk.keeper.receive, itertools.count()

    def fail_once(*args: Any, **options: Any) -> Any:
        if next(calls) == 1:
            raise ZeroDivisionError
        return receive(*args, **options)

    monkeypatch.setattr(desk.keeper, "receive", fail_once)
    desk.publish("a", "b", "c")
    got: list[Any] = []
    desk.consume(got.append)
    desk.drain_until(lambda: len(got) == 3)


def test_a_lease_counts_from_the_last_try_of_a_receive_that_boto3_repeats(
    desk: ChannelHarness,
) -> None:
    failed: list[float] = []
    refuse = fail()

    def note_and_fail(body: Body, forward: Forward) -> Answer:
        failed.append(desk.keeper.now())
        return refuse(body, forward)

    desk.proxy.rule("ReceiveMessage", first(2, note_and_fail))
    desk.publish("a")
    leases: list[Any] = []
    desk.consume(lambda message: leases.append(desk.keeper.find(message.delivery_tag)))
    desk.drain_until(lambda: leases)
    assert leases[0].received_at > failed[1]


@pytest.mark.parametrize("timeout", [10, None])
def test_a_receive_that_boto3_repeats_after_its_read_timeout_counts_as_unanswered(
    new_desk: Callable[..., ChannelHarness], monkeypatch: pytest.MonkeyPatch, timeout: int | None
) -> None:
    monkeypatch.setattr("celery_sqs_heartbeat.transport.kombu_channel.ANSWER_SECONDS", 0.0)
    # Without any timeout, the poll would wait for its answer indefinitely.
    monkeypatch.setattr("celery_sqs_heartbeat.transport.kombu_channel.CLIENT_SECONDS", 10)
    # Long enough that the second try does not time out, too, on a machine that stalls meanwhile.
    desk = new_desk(options={"client-config": {"read_timeout": timeout}})
    desk.proxy.rule("ReceiveMessage", first(1, never_answer()))
    desk.publish("a")
    came: list[Any] = []
    desk.consume(came.append)
    desk.drain_until(lambda: came)
    (queue,) = desk.joined.reception.polled.view()
    assert (queue.queue, queue.unanswered, queue.deaf) == (desk.name, 1, False)


def test_a_lease_has_the_attributes_of_its_message(desk: ChannelHarness) -> None:
    desk.publish("a")
    leases: list[Any] = []
    desk.consume(lambda message: leases.append(desk.keeper.find(message.delivery_tag)))
    desk.drain_until(lambda: leases)
    assert leases[0].receive_count == 1
    assert leases[0].sent_time <= leases[0].first_received_time


def test_an_ack_frees_the_slot_at_once_and_deletes_in_a_batch(desk: ChannelHarness) -> None:
    desk.publish("a", "b", "c")
    acked: list[None] = []
    desk.consume(lambda message: acked.append(message.ack()))
    desk.drain_until(lambda: len(acked) == 3)
    assert desk.keeper.flush(PATIENCE)
    assert desk.channel.qos.can_consume_max_estimate() is None
    assert desk.counts() == (0, 0)
    assert len(desk.keeper) == 0
    assert desk.proxy.calls("DeleteMessage") == []


def test_a_redelivery_of_a_running_message_starts_no_second_copy_and_its_ack_deletes_it(
    desk: ChannelHarness,
) -> None:
    desk.publish("a")
    running: list[Any] = []
    desk.consume(running.append)
    desk.drain_until(lambda: running)
    (message,) = running
    desk.make_visible(message)
    desk.drain_polls()
    assert sum(desk.batches()) == 2
    assert len(running) == 1
    assert len(desk.keeper) == 1
    message.ack()
    assert desk.keeper.flush(PATIENCE)
    assert desk.counts() == (0, 0)


def test_a_message_received_again_after_its_task_succeeded_is_deleted_not_run(
    desk: ChannelHarness,
) -> None:
    desk.publish("a")
    desk.proxy.rule("DeleteMessageBatch", fail(500))
    running: list[Any] = []
    desk.consume(running.append)
    desk.drain_until(lambda: running)
    running[0].ack()
    desk.proxy.wait_for("DeleteMessageBatch")
    desk.make_visible(running[0])
    desk.drain_polls()
    assert sum(desk.batches()) == 2
    assert len(running) == 1
    desk.proxy.clear()
    assert desk.keeper.flush(PATIENCE)
    assert desk.counts() == (0, 0)


def test_undeliverable_messages_affect_no_others_and_are_released_after_growing_delays(
    desk: ChannelHarness, caplog: pytest.LogCaptureFixture
) -> None:
    desk.publish("good", *(f"bad {number}" for number in range(4)), "fine")

    seen: set[str] = set()

    def take(message: Any) -> None:
        seen.add(message.headers["id"])
        if message.headers["id"].startswith("bad"):
            raise LookupError
        message.ack()

    consumer = desk.consume(take)
    desk.drain_until(lambda: len(seen) == 6)
    consumer.cancel()
    wait_until(lambda: len(desk.keeper) == 0)
    # Without a dead-letter queue, the first delay is a second.
    calls = desk.proxy.calls("ChangeMessageVisibilityBatch")
    delays = [entry["VisibilityTimeout"] for call in calls for entry in call.entries]
    assert sum(delay <= 1 for delay in delays) >= 4
    assert "can't be delivered, and is released" in caplog.text


def test_a_connection_error_at_a_delivery_releases_its_message_and_those_behind_it(
    new_desk: Callable[..., ChannelHarness],
) -> None:
    # The error may be a result backend's. Celery reports to it that a task has expired.
    desk = new_desk(release_delay=7)
    desk.publish(*(f"m{number}" for number in range(5)))

    def lose(message: Any) -> None:
        raise ConnectionResetError

    def refuse_the_next(body: Body, forward: Forward) -> Answer:
        desk.proxy.rule("ReceiveMessage", deny())
        return forward(body)

    desk.proxy.rule("ReceiveMessage", refuse_the_next)
    desk.consume(lose)
    with pytest.raises(ConnectionResetError):
        desk.drain_polls()
    assert desk.keeper.flush(PATIENCE)
    assert len(desk.keeper) == 0
    # The call of the first release may take extensions of the others along, to fill up.
    calls = desk.proxy.calls("ChangeMessageVisibilityBatch")
    entries = [entry for call in calls for entry in call.entries]
    last = {entry["ReceiptHandle"]: entry["VisibilityTimeout"] for entry in entries}
    assert sorted(last.values()) == [0, 0, 0, 0, 7]


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
    desk.drain_polls()
    assert sum(desk.batches()) == 2
    desk.channel.reject(taken[0].delivery_tag, requeue=True)
    desk.channel.basic_reject(taken[0].delivery_tag, requeue=False)
    desk.keeper.flush()
    assert not desk.proxy.calls("DeleteMessageBatch")
    assert sum(desk.counts()) == 1


def test_closing_the_channel_releases_messages_that_were_not_acked(desk: ChannelHarness) -> None:
    desk.publish("a", "b")
    taken: list[Any] = []
    desk.consume(taken.append)
    desk.drain_until(lambda: len(taken) == 2)
    assert desk.counts() == (0, 2)
    desk.channel.close()
    assert desk.keeper.flush(PATIENCE)
    # Not before the channel's last poll has ended, which would receive them.
    wait_until(lambda: desk.counts() == (2, 0))
    wait_until(lambda: len(desk.keeper) == 0)


def test_a_message_that_a_user_gets_one_by_one_is_not_leased(desk: ChannelHarness) -> None:
    desk.publish("a")
    message = Queue(desk.name, channel=desk.channel).get()
    assert message is not None
    assert len(desk.keeper) == 0
    message.ack()
    assert desk.counts() == (0, 0)


def test_messages_that_arrive_after_the_channel_was_closed_are_released(
    desk: ChannelHarness,
) -> None:
    got: list[Any] = []
    is_closed = threading.Event()
    desk.proxy.rule("ReceiveMessage", answer_after(is_closed))
    desk.publish("a")
    desk.open_poll(got.append)
    wait_until(lambda: desk.counts() == (0, 1))
    desk.channel.close()
    is_closed.set()
    wait_until(lambda: desk.counts() == (1, 0))
    assert got == []
    assert desk.keeper.flush(PATIENCE)
    assert len(desk.keeper) == 0


def test_a_lease_begins_with_the_timeout_of_its_own_poll_even_if_the_queue_has_another(
    desk: ChannelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[Any] = []
    has_changed = threading.Event()
    desk.proxy.rule("ReceiveMessage", forward_after(has_changed))
    desk.publish("a")
    with monkeypatch.context() as before:
        before.setattr(desk.heartbeat.leased, "asked", lambda queue, url: 90)
        poll = desk.open_poll(lambda message: leases.append(desk.keeper.find(message.delivery_tag)))
    desk.look()
    has_changed.set()
    desk.drain_until(lambda: leases)
    assert desk.proxy.calls("ReceiveMessage")[0].body["VisibilityTimeout"] == 90
    assert leases[0].expires_at == poll.sent_at + 90
    assert leases[0].terms == LeaseTerms.of(90)


def test_the_keeper_knows_until_when_an_open_poll_of_an_ended_consumer_may_receive(
    new_desk: Callable[..., ChannelHarness],
) -> None:
    desk = new_desk(options={"wait_time_seconds": 20}, visibility_timeout=120)
    may_fail = threading.Event()
    desk.proxy.rule("ReceiveMessage", deny())
    desk.proxy.rule("ReceiveMessage", forward_after(may_fail))
    poll, reception = desk.open_poll(), desk.joined.reception
    assert poll.queue is not None
    # The first one has more receives left than the second one.
    leases: list[Any] = [
        SimpleNamespace(queue_url=poll.queue.lease_url, has_few_receives=has_few)
        for has_few in (False, True)
    ]
    # Its own consumer gets what it brings.
    assert [reception.poll_left(lease) for lease in leases] == [0.0, 0.0]
    desk.channel.close()
    ends = ends_at(desk.polls, poll.queue.lease_url)
    assert ends == poll.ends_at > clock.now()
    assert min(reception.poll_left(lease) for lease in leases) > 0.0
    reception.is_urgent = True
    assert [reception.poll_left(lease) > 0.0 for lease in leases] == [False, True]
    reception.is_urgent = False
    may_fail.set()
    wait_until(lambda: not desk.polls)
    assert [reception.poll_left(lease) for lease in leases] == [0.0, 0.0]


@pytest.mark.parametrize("way", ["ending", "closed"])
@pytest.mark.parametrize("is_sent", [False, True], ids=["before it is sent", "while it is open"])
def test_no_poll_is_sent_after_the_end_of_the_consumer(
    desk: ChannelHarness, way: str, is_sent: bool
) -> None:
    """Before a poll is sent, credentials may be renewed. On EKS that is a call to STS."""
    has_ended, is_begun = threading.Event(), threading.Event()
    desk.proxy.rule("ReceiveMessage", deny())
    desk.proxy.rule("ReceiveMessage", forward_after(has_ended))
    if is_sent:
        desk.open_poll()
    else:

        def take_long() -> None:
            is_begun.set()
            has_ended.wait(PATIENCE)

        desk.poll_clients.prepare = take_long
        desk.consume(lambda message: None)
        desk.drain()
        assert is_begun.wait(PATIENCE)
    if way == "closed":
        desk.channel.close()
    else:
        end_polls(desk.heartbeat)
    has_ended.set()
    desk.joined.join()
    assert len(desk.proxy.calls("ReceiveMessage")) == is_sent
    assert not desk.is_polling()


def test_a_poll_that_fails_is_logged_counts_as_unanswered_and_is_repeated(
    desk: ChannelHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """With `sts_role_arn`, a role is assumed for a poll."""
    refused: Any = {"Error": {"Code": "AccessDenied", "Message": "no"}}

    def assume() -> None:
        raise ClientError(refused, "AssumeRole")

    got: list[Any] = []
    desk.publish("a")
    desk.poll_clients.prepare = assume
    desk.consume(got.append)
    desk.drain_until(lambda: "when calling the AssumeRole operation" in caplog.text)
    desk.poll_clients.prepare = bool
    desk.drain_until(lambda: got)
    assert f"receiving from queue {desk.name} fails and is retried" in caplog.text
    (queue,) = desk.joined.reception.polled.view()
    assert queue.unanswered >= 1
    assert not queue.deaf


def test_the_messages_of_the_last_polls_are_released_even_if_the_log_is_locked(
    desk: ChannelHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The signal that ends a worker may arrive while its main thread writes a log line."""
    caplog.set_level(logging.INFO, logger="celery_sqs_heartbeat")
    may_answer, released = threading.Event(), threading.Event()

    def add_unreadable(body: Body, forward: Forward) -> Answer:
        answer = forward(body).payload
        return Answer.of({"Messages": [*answer["Messages"], {"Body": "no id"}]})

    desk.proxy.rule("ReceiveMessage", add_unreadable)
    desk.proxy.rule("ReceiveMessage", answer_after(may_answer))
    desk.proxy.rule("ReceiveMessage", first(1, deny()))
    release = desk.keeper.release

    def note(*args: Any, **options: Any) -> bool:
        known = release(*args, **options)
        released.set()
        return known

    monkeypatch.setattr(desk.keeper, "release", note)
    desk.publish("a")
    desk.consume(lambda message: None)
    desk.drain()
    # The second poll has the message: the first one was refused.
    wait_until(lambda: desk.counts() == (0, 1))
    with caplog.handler.lock:  # type: ignore[union-attr]
        end_polls(desk.heartbeat)
        may_answer.set()
        assert released.wait(PATIENCE)
    desk.joined.join()
    for said in ("works again", "have no message id", "released 1 message received"):
        assert said in caplog.text


def test_messages_of_a_no_ack_queue_are_not_tracked(desk: ChannelHarness) -> None:
    desk.publish("a")
    seen: list[int] = []
    queue = Queue(desk.name, channel=desk.channel)
    consumer = Consumer(desk.channel, [queue], on_message=lambda m: seen.append(len(desk.keeper)))
    consumer.consume(no_ack=True)
    # kombu deletes on its event loop, which does not run here.
    desk.channel.asynsqs = lambda queue: SimpleNamespace(delete_message=lambda *args: None)
    desk.drain_until(lambda: seen)
    assert seen == [0]


def test_consuming_pauses_while_deletes_pile_up(
    desk: ChannelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celery_sqs_heartbeat.keeper.thread_keeper.MAX_ENDING", 2)
    desk.publish(*(f"m{number}" for number in range(6)))
    desk.proxy.rule("DeleteMessageBatch", fail(500))
    seen: list[str] = []

    def ack(message: Any) -> None:
        seen.append(message.headers["id"])
        message.ack()

    desk.channel.basic_qos(0, 1, False)
    desk.consume(ack)
    desk.drain_until(lambda: desk.keeper.ending >= 2)
    wait_until(lambda: not desk.is_polling())
    assert len(seen) == 2
    desk.proxy.clear()
    desk.work_until(lambda: len(set(seen)) == 6)
    wait_until(desk.is_polling)


@pytest.mark.parametrize("is_ending", [False, True])
def test_a_full_worker_polls_as_soon_as_a_message_is_acked_unless_it_is_ending(
    desk: ChannelHarness, is_ending: bool
) -> None:
    desk.publish("a", "b")
    taken: list[Any] = []
    desk.channel.basic_qos(0, 1, False)
    desk.consume(taken.append)
    desk.drain_until(lambda: taken)
    wait_until(lambda: not desk.is_polling())
    if is_ending:
        end_polls(desk.heartbeat)
    taken[0].ack()
    if is_ending:
        assert desk.polls == []
    else:
        wait_until(lambda: sum(desk.batches()) == 2)


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


def test_a_worker_without_a_prefetch_limit_receives_no_more_than_it_can_keep_extended(
    desk: ChannelHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # One call every twenty seconds extends ten messages.
    monkeypatch.setattr("celery_sqs_heartbeat.transport.leased_queues.CALLS_PER_SECOND", 1 / 20)
    desk.publish(*(f"m{number}" for number in range(25)))
    taken: list[Any] = []
    desk.consume(taken.append)
    assert "worker_prefetch_multiplier=0" in caplog.text
    assert "It stops at 10 messages" in caplog.text
    desk.drain_until(lambda: len(taken) >= 10)
    wait_until(lambda: not desk.is_polling())
    assert len(taken) < 20
    for message in taken:
        message.ack()
    desk.work_until(lambda: len(taken) >= 20)


def test_without_a_worker_an_unusable_queue_raises_kombus_error(
    new_desk: Callable[..., ChannelHarness],
) -> None:
    """kombu's own tests expect this, and so do users of a channel without a worker."""
    used = {"url": "http://localhost/000000000000/used"}
    desk = new_desk(options={"predefined_queues": {"used": used}})
    with pytest.raises(SQS.UndefinedQueueException):
        desk.channel._new_queue("unused")


def test_without_a_heartbeat_the_transport_is_kombus_own(proxy: FaultProxy) -> None:
    name = f"q-{uuid.uuid4().hex[:12]}"
    with Connection(
        proxy.broker_url,
        transport=Transport,
        transport_options={"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1},
    ) as connection:
        queue = connection.SimpleQueue(name)
        queue.put("x")
        queue.get(timeout=PATIENCE).ack()
        queue.close()
        channel = connection.default_channel
        wanted = SQS.Channel.fetch_message_attributes.__get__(channel)
        assert channel.fetch_message_attributes == wanted
    assert len(proxy.calls("DeleteMessage")) == 1
    assert proxy.calls("DeleteMessageBatch") == []
