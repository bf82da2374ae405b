"""What a channel's polls ask for, when they begin and are sent, and who gets their messages."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import boto3
import pytest

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.keeper.thread_keeper import MAX_ENDING, ThreadKeeper
from celery_sqs_heartbeat.leases.recent import RecentEnds
from celery_sqs_heartbeat.observe.watched import PolledQueues
from celery_sqs_heartbeat.receiving.reception import Reception
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.long_polls import Poll, Source
from celery_sqs_heartbeat.sqs.queues import REFRESH_SECONDS, QueueDirectory
from celery_sqs_heartbeat.sqs.sending import guard
from celery_sqs_heartbeat.transport.feed import Feed
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues
from tests.support.joined import Joined
from tests.support.waiting import PATIENCE, wait_until

FIFO, STANDARD = "orders.fifo", "orders"


def heartbeat_of(**parts: Any) -> Any:
    return SimpleNamespace(
        feeds={},
        new_channel=lambda: 1,
        note_turn=bool,
        note_free=bool,
        is_ending=False,
        arriving=set(),
        pool_size=lambda queues: math.inf,
        is_green=False,
        in_pool=set(),
        **parts,
    )


def channel_of(slots: Callable[[], int | None], **parts: Any) -> Any:
    return SimpleNamespace(
        closed=False,
        connection=SimpleNamespace(polling_interval=0),
        wait_time_seconds=10,
        qos=SimpleNamespace(prefetch_count=10, can_consume_max_estimate=slots),
        queue_url=lambda queue: f"https://sqs/1/{queue}",
        wanted_attributes=dict,
        **parts,
    )


class Scene:
    """The feed of a consumer of one queue, with a client whose receives wait until the end.

    Attributes:
        slots: How many prefetch slots are free.
        attributes: What the attributes of its queues are.
        read: Reads them.
        now: The time, in seconds, for the age of the attributes that are known.
        queues: Those with a consumer.
        asked: How many messages each receive asks for.
        parameters: Those of the last receive.
        on_receive: Is called by each receive, on its thread.
    """

    def __init__(self, queue: str, conf: dict[str, Any], *, waiting_room: int = 100) -> None:
        self.queue, self.slots, self.now = queue, 10, 0.0
        self.queues = [queue]
        self.attributes = QueueAttributes(visibility_timeout=30, is_known=True)
        self.read: Callable[[str], QueueAttributes] = lambda url: self.attributes
        self.parameters: dict[str, Any] = {}
        self.asked: SimpleQueue[int] = SimpleQueue()
        self.on_receive: Callable[[], object] = bool
        self.client: Any = SimpleNamespace(receive_message=self.receive)
        self._is_over = threading.Event()
        values = {f"sqs_heartbeat_{name}": value for name, value in conf.items()}
        settings = read_settings(values.get)
        queues = QueueDirectory(
            lambda url: self.read(url), lambda job: job(), clock=lambda: self.now
        )
        self.joined = Joined(
            most_waiting=waiting_room - 1, concurrency=1, poll_clients=self._client
        )
        heartbeat = heartbeat_of(
            leased=LeasedQueues(settings, queues, Mock(), Mock()),
            keeper=self.joined.worker,
        )
        channel = channel_of(
            slots=lambda: self.slots,
            heartbeat=heartbeat,
            leased_queues=lambda: self.queues,
            consumer=lambda queue: bool if queue in self.queues else None,
        )
        self.heartbeat = heartbeat
        self.feed = Feed(channel, Mock(), bool)

    def _client(self, queue_url: str) -> Any:
        del queue_url
        return self.client

    @property
    def polls(self) -> list[Poll]:
        """The open polls, after the keeper knows what room there is."""
        self.joined.settle()
        return self.joined.reception.polls

    @property
    def polled(self) -> PolledQueues:
        return self.joined.reception.polled

    def receive(self, **asked: Any) -> dict[str, Any]:
        self.on_receive()
        self.parameters = asked
        self.asked.put(asked["MaxNumberOfMessages"])
        self._is_over.wait(PATIENCE)
        return {}

    def end(self) -> None:
        self.feed.stop()
        self._is_over.set()
        self.joined.close()


@pytest.fixture
def new_scene() -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def make(queue: str = STANDARD, conf: dict[str, Any] | None = None, **options: Any) -> Scene:
        scenes.append(Scene(queue, conf or {}, **options))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.end()


@pytest.mark.parametrize(
    ("queue", "conf", "waiting_room", "asked"),
    [
        pytest.param(STANDARD, {}, 1, 10, id="a standard queue"),
        pytest.param(FIFO, {}, 91, 1, id="the default"),
        pytest.param(FIFO, {"fifo": "parallel"}, 1, 10, id="nothing waits"),
        pytest.param(FIFO, {"fifo_batch": 10}, 91, 10, id="set"),
        pytest.param(
            FIFO, {"fifo_batch": 10}, 3, 3, id="set, and most messages would find no room"
        ),
        pytest.param(FIFO, {"queues": {FIFO: {"fifo_batch": 7}}}, 91, 7, id="set for the queue"),
    ],
)
@pytest.mark.parametrize("slots", [10, 1])
def test_a_receive_asks_for_no_more_than_may_wait(
    new_scene: Callable[..., Scene],
    queue: str,
    conf: dict[str, Any],
    waiting_room: int,
    asked: int,
    slots: int,
) -> None:
    scene = new_scene(queue, conf, waiting_room=waiting_room)
    scene.slots = slots
    scene.feed.consume()
    assert scene.asked.get(timeout=PATIENCE) == min(asked, slots)


@pytest.mark.parametrize(
    ("open_polls", "asked"),
    [
        pytest.param([(STANDARD, 10), (FIFO, 1)], 10, id="polls after which nothing waits"),
        pytest.param([("other.fifo", 4)], 7, id="one of its messages is delivered"),
        pytest.param([("other.fifo", 10), (FIFO, 10)], 1, id="at least one"),
    ],
)
def test_a_receive_leaves_room_for_what_open_polls_may_bring(
    new_scene: Callable[..., Scene],
    monkeypatch: pytest.MonkeyPatch,
    open_polls: list[tuple[str, int]],
    asked: int,
) -> None:
    scene = new_scene(FIFO, {"fifo_batch": 10}, waiting_room=10)
    others = [
        Poll(
            source=Source(queue, lambda poll: (), in_order=queue.endswith(".fifo")),
            count=count,
            booked=count,
        )
        for queue, count in open_polls
    ]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Reception, "polls", others)
        scene.feed.consume()
        scene.joined.settle()
    assert scene.asked.get(timeout=PATIENCE) == asked


@pytest.mark.parametrize("is_ending", [False, True])
def test_a_slot_that_is_freed_while_the_worker_ends_causes_no_poll(
    new_scene: Callable[..., Scene], *, is_ending: bool
) -> None:
    scene = new_scene()
    scene.slots = 0
    scene.feed.consume()
    assert scene.polls == []
    scene.heartbeat.is_ending = is_ending
    scene.slots = 1
    scene.feed.fill()
    assert len(scene.polls) == (0 if is_ending else 1)


def test_a_poll_asks_for_the_timeout_that_its_queue_has_by_then(
    new_scene: Callable[..., Scene],
) -> None:
    scene = new_scene()
    scene.slots = 0
    scene.feed.consume()
    scene.attributes, scene.now = QueueAttributes(visibility_timeout=90), REFRESH_SECONDS + 1
    # The first one has the attributes read again.
    scene.feed.look()
    scene.slots = 1
    scene.feed.look()
    scene.asked.get(timeout=PATIENCE)
    (poll,) = scene.polls
    assert poll.queue is not None
    assert (poll.queue.timeout, scene.parameters["VisibilityTimeout"]) == (90, 90)


@pytest.mark.parametrize("is_other", [False, True], ids=["the same queue", "another queue"])
def test_a_queue_that_is_cancelled_during_a_look_is_not_polled_again(
    new_scene: Callable[..., Scene], *, is_other: bool
) -> None:
    # A look is made on another thread than the consumer's.
    scene = new_scene()
    scene.slots = 0
    scene.queues.insert(0, "other")
    scene.feed.consume()
    cancelled = "other" if is_other else scene.queue

    def cancel(url: str) -> QueueAttributes:
        scene.queues[:] = [each for each in scene.queues if each != cancelled]
        scene.feed.cancel(cancelled)
        return scene.attributes

    scene.read, scene.now = cancel, REFRESH_SECONDS + 1
    scene.slots = 10
    scene.feed.look()
    assert [poll.source.name for poll in scene.polls] == scene.queues


@pytest.fixture
def client() -> Any:
    made = boto3.client(
        "sqs",
        region_name="us-east-1",
        endpoint_url="http://127.0.0.1:1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    guard(made)
    return made


def send(client: Any) -> None:
    """Do what boto3 does when it sends a receive."""
    client.meta.events.emit("before-send.sqs.ReceiveMessage", request=None)


def test_the_sending_time_of_a_receive_is_that_of_its_last_try(
    new_scene: Callable[..., Scene], client: Any
) -> None:
    scene = new_scene()
    sent: list[tuple[float, int]] = []

    def try_twice() -> None:
        (poll,) = scene.polls
        for _ in range(2):
            send(client)
            (queue,) = scene.polled.view()
            sent.append((poll.sent_at, queue.unanswered))

    client.receive_message, scene.client, scene.on_receive = scene.receive, client, try_twice
    scene.feed.consume()
    scene.asked.get(timeout=PATIENCE)
    # Of another thread.
    send(client)
    (poll,) = scene.polls
    (first, unanswered), (last, unanswered_later) = sent
    assert first < last == poll.sent_at
    assert (unanswered, unanswered_later) == (0, 1)


def test_a_receive_that_boto3_has_not_sent_is_given_up_when_its_consumer_has_ended(
    new_scene: Callable[..., Scene], client: Any
) -> None:
    scene = new_scene()

    def end_and_send() -> None:
        scene.feed.cancel(scene.queue)
        send(client)

    client.receive_message, scene.client, scene.on_receive = scene.receive, client, end_and_send
    scene.feed.consume()
    wait_until(lambda: not scene.polls)
    assert scene.asked.empty()
    (queue,) = scene.polled.view()
    assert queue.unanswered == 0


def test_nothing_is_logged_within_the_lock_of_the_messages(
    new_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the log goes may take long, and other threads receive meanwhile.
    scene, got = new_scene(), threading.Event()

    def look() -> None:
        scene.joined.look()
        got.set()

    def emit(*_: Any) -> None:
        threading.Thread(target=look).start()
        assert got.wait(PATIENCE)

    logger = logging.getLogger("celery_sqs_heartbeat.keeper.thread_keeper")
    monkeypatch.setattr(logger, "handle", emit)
    monkeypatch.setattr(ThreadKeeper, "ending", MAX_ENDING)
    scene.feed.consume()
    assert got.wait(PATIENCE)


class Delivery:
    """A feed that gets messages, with a keeper that notes what it hears.

    Attributes:
        allowed: How many more messages the keeper may hand over, each time that it was said.
        slots: How many prefetch slots are free; None without a limit.
        taken: The tags of the messages that take a slot.
        consumers: The queues that have one.
    """

    def __init__(self) -> None:
        self.allowed: list[int] = []
        self.slots: int | None = 10
        self.taken: set[str] = set()
        self.consumers = [STANDARD]
        self.keeper = MagicMock()
        self.keeper.allow = lambda channel, room: self.allowed.append(room()[0])
        self.deliverer, self.wake = Mock(), Mock()
        self.heartbeat = heartbeat_of(
            keeper=self.keeper,
            leased=Mock(most_leases=lambda: 8_000.0),
        )
        channel = channel_of(
            slots=lambda: self.slots,
            heartbeat=self.heartbeat,
            leased_queues=lambda: [STANDARD],
            consumer=lambda queue: bool if queue in self.consumers else None,
            takes_slot=lambda tag: tag in self.taken,
        )
        self.feed = Feed(channel, self.deliverer, self.wake)
        self.feed.consume()

    def take(self, *names: str) -> list[Any]:
        messages: list[Any] = [SimpleNamespace(handle=name, queue=STANDARD) for name in names]
        self.feed.take(messages)
        return messages


def test_a_channel_may_get_as_many_messages_as_it_has_slots_less_those_that_arrive() -> None:
    delivery = Delivery()
    delivery.take("a", "b", "c")
    delivery.feed.fill()

    def deliver(messages: list[Any]) -> None:
        # While a message is delivered, it has a slot.
        delivery.taken, delivery.slots = {"a"}, 9
        delivery.feed.fill()
        # "b" is delivered, and "c" was released.
        delivery.heartbeat.arriving.clear()
        delivery.slots = -2

    delivery.deliverer.deliver = deliver
    delivery.feed.deliver()
    assert delivery.allowed == [10, 7, 7, -2]


@pytest.mark.parametrize(
    ("ends", "in_pool", "allowed"),
    [
        pytest.param([], 3, 7, id="nothing is known yet"),
        pytest.param([0.0], 3, 0, id="long tasks, and a full pool"),
        pytest.param([0.0], 1, 2, id="long tasks, and free processes"),
        pytest.param([7.9] + [9.0] * 12, 3, 2, id="as many as end in half a second"),
        pytest.param([9.9] * 5, 3, 0, id="several end at once"),
        pytest.param([9.9] * 50, 3, 7, id="short tasks"),
    ],
)
def test_a_worker_holds_what_its_pool_can_soon_begin(
    monkeypatch: pytest.MonkeyPatch, ends: list[float], in_pool: int, allowed: int
) -> None:
    delivery, now = Delivery(), [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    delivery.slots = 7
    delivery.heartbeat.pool_size = lambda queues: 3
    delivery.heartbeat.in_pool = set(range(in_pool))
    for now[0] in ends:
        delivery.feed.note_end("h")
    now[0] = 10.0
    delivery.feed.fill()
    assert delivery.allowed[-1] == allowed


def test_old_ends_are_forgotten_although_no_one_asks_for_the_pace() -> None:
    ends = RecentEnds()
    for second in range(100):
        ends.note(second)
    assert len(ends._ends) <= 3


def test_without_a_prefetch_limit_it_may_get_what_the_worker_can_keep() -> None:
    delivery = Delivery()
    delivery.slots = None
    delivery.keeper.__len__.return_value = 3
    delivery.take("a")
    delivery.feed.fill()
    assert delivery.allowed[-1] == 8_000 - 3 - 1


def test_messages_are_delivered_ten_in_a_turn_and_wake_the_thread_again() -> None:
    delivery = Delivery()
    messages = delivery.take(*(f"m{number}" for number in range(12)))
    assert delivery.wake.call_count == 1
    for expected, woken in ((messages[:10], 2), (messages[10:], 2)):
        assert delivery.feed.deliver()
        assert delivery.deliverer.deliver.call_args.args[0] == expected
        assert delivery.wake.call_count == woken
    assert not delivery.feed.deliver()


def test_messages_beyond_the_prefetch_count_wait_until_a_slot_is_free() -> None:
    delivery = Delivery()
    delivery.slots = 1
    first, *others = delivery.take("a", "b", "c")
    assert delivery.feed.deliver()
    assert delivery.deliverer.deliver.call_args.args[0] == [first]
    delivery.slots = 0
    delivery.wake.reset_mock()
    delivery.feed.fill()
    assert not delivery.feed.deliver()
    assert delivery.wake.call_count == 0
    delivery.slots = 2
    delivery.feed.fill()
    assert delivery.wake.call_count == 1
    assert delivery.feed.deliver()
    assert delivery.deliverer.deliver.call_args.args[0] == others


def test_messages_wait_until_a_greenlet_is_free() -> None:
    delivery = Delivery()
    delivery.heartbeat.is_green = True
    delivery.heartbeat.pool_size = lambda queues: 2 if STANDARD in queues else 0
    first, second, _ = delivery.take("a", "b", "c")
    for running, expected in (({"a task"}, first), ({"a"}, second)):
        delivery.heartbeat.in_pool = running
        assert delivery.feed.deliver()
        assert delivery.deliverer.deliver.call_args.args[0] == [expected]
    delivery.heartbeat.in_pool = {"a", "b"}
    assert not delivery.feed.deliver()


@pytest.mark.parametrize("is_worker", [False, True], ids=["its consumer", "the worker"])
@pytest.mark.parametrize("comes_late", [False, True], ids=["waits", "arrives then"])
def test_a_message_that_has_not_been_delivered_at_the_end_is_released_from_the_last(
    *, is_worker: bool, comes_late: bool
) -> None:
    delivery = Delivery()
    messages: list[Any] = []
    if not comes_late:
        messages = delivery.take("a", "b")
    delivery.heartbeat.is_ending = is_worker
    delivery.consumers.clear()
    if is_worker:
        delivery.feed.stop()
    else:
        delivery.feed.cancel(STANDARD)
    if comes_late:
        messages = delivery.take("a", "b")
    released = [call.args[0] for call in delivery.deliverer.release.call_args_list]
    assert released == [[messages[1]], [messages[0]]]
    assert not delivery.feed.deliver()


def test_a_worker_that_ends_asks_for_no_more() -> None:
    delivery = Delivery()
    told = len(delivery.allowed)
    delivery.heartbeat.is_ending = True
    delivery.feed.fill()
    delivery.feed.look()
    assert len(delivery.allowed) == told
    delivery.feed.stop()
    assert delivery.heartbeat.feeds == {}
    delivery.keeper.close.assert_called_once_with(1)
