"""What the keeper hands over is delivered as slots and greenlets become free, or released."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kombu import Connection, Consumer, Queue
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from kombu.transport import SQS

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.policy import longest_wait
from celery_sqs_heartbeat.leases.received_as import RecentEnds
from celery_sqs_heartbeat.link.messages import read_queue
from celery_sqs_heartbeat.sqs import sending
from celery_sqs_heartbeat.sqs.queues import REFRESH_SECONDS, ConsumedQueue
from celery_sqs_heartbeat.transport import FedChannel, Transport
from celery_sqs_heartbeat.transport.binding import bind
from celery_sqs_heartbeat.transport.kombu_channel import (
    CLIENT_SECONDS,
    REPORTED,
    with_reported,
    with_timeouts,
)
from celery_sqs_heartbeat.worker.shutdown import end_polls
from tests.support.waiting import wait_until
from tests.unit.scene import ATTRIBUTES, HIDDEN, Scene, body_of, url_of

New = Callable[..., Scene]
NOT_DELIVERED = "released 0 not delivered"


def test_a_channel_may_get_as_many_messages_as_it_has_slots_less_those_that_arrive(
    scene: Scene,
) -> None:
    during: list[int] = []

    def take(message: Any) -> None:
        # While a message is delivered, it has a slot or arrives, and never both.
        during.extend(scene.rooms(scene.channel.feed.fill))
        if message.delivery_tag == "b":
            raise LookupError

    scene.consume(take)
    assert scene.rooms(lambda: scene.arrive("a", "b", "c")) == []
    assert scene.rooms(scene.channel.feed.fill) == [7]
    # The one that could not be delivered leaves its slot.
    assert scene.rooms(scene.deliver)[-1] == 8
    assert during == [7, 7, 8]
    assert scene.rooms(lambda: scene.channel.basic_ack("a")) == [9]
    assert scene.rooms(lambda: scene.channel.basic_qos(0, 3, False)) == [2]
    assert (scene.fate("a"), scene.slots) == ("deleted", {"c"})
    # Other threads may ask until the end has reached the channel.
    scene.heartbeat.is_ending = True
    for do in (scene.channel.feed.fill, scene.heartbeat.look, lambda: end_polls(scene.heartbeat)):
        assert scene.rooms(do) == []


def test_without_a_prefetch_limit_it_may_get_what_the_worker_can_keep_extended(
    new_scene: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # One call every twenty seconds extends ten messages.
    monkeypatch.setattr("celery_sqs_heartbeat.transport.leased_queues.CALLS_PER_SECOND", 1 / 20)
    scene = new_scene(prefetch=0)
    assert "worker_prefetch_multiplier=0" in caplog.text
    assert "It stops at 10 messages" in caplog.text
    scene.arrive("a")
    # It is held, and arrives.
    assert scene.rooms(scene.channel.feed.fill) == [8]


def test_without_a_worker_an_unusable_queue_raises_kombus_error(scene: Scene) -> None:
    with pytest.raises(SQS.UndefinedQueueException):
        Queue("unused", channel=scene.channel).queue_declare()


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
    new_scene: New, at: Callable[[float], None], ends: list[float], in_pool: int, allowed: int
) -> None:
    scene = new_scene(prefetch=7 + in_pool)
    scene.heartbeat.pool_size = lambda queues: 3
    scene.deliver(*(f"m{number}" for number in range(in_pool)))
    scene.heartbeat.in_pool.update(scene.got)
    for each in ends:
        at(each)
        scene.channel.feed.note_end("another, which had ended")
    at(10.0)
    assert scene.rooms(scene.channel.feed.fill) == [allowed]


def test_old_ends_are_forgotten_although_no_one_asks_for_the_pace() -> None:
    ends = RecentEnds()
    for second in range(100):
        ends.note(second)
    assert len(ends._ends) <= 3


@pytest.mark.parametrize("is_green", [False, True])
def test_a_request_leaves_the_pool_with_its_slot_or_with_greenlets_at_its_end(
    new_scene: New, *, is_green: bool
) -> None:
    scene = new_scene(has_processes=False, is_green=is_green)
    request = scene.start("a")
    scene.heartbeat.in_pool["a"] = request
    assert len(scene.rooms(request.acknowledge)) == 1
    assert ("a" in scene.heartbeat.in_pool) is is_green
    assert len(scene.rooms(request.end)) == is_green
    assert not scene.heartbeat.in_pool


def test_messages_are_delivered_ten_in_a_turn_and_wake_the_thread_again(new_scene: New) -> None:
    scene = new_scene(prefetch=20)
    names = [f"m{number}" for number in range(12)]
    assert not scene.is_woken()
    scene.arrive(*names)
    assert scene.is_woken()
    for count in (10, 12):
        scene.deliver()
        assert [*scene.got] == names[:count]
        assert scene.is_woken() is (count == 10)
    with pytest.raises(TimeoutError):
        scene.connection.drain_events(timeout=0.01)


def test_messages_wait_until_a_greenlet_is_free(new_scene: New) -> None:
    scene = new_scene(has_processes=False, is_green=True)
    scene.heartbeat.pool_size = lambda queues: 2 if "q" in queues else 0
    scene.deliver("a", "b", "c")
    assert [*scene.got] == ["a", "b"]
    scene.heartbeat.in_pool.update(scene.got)
    scene.deliver()
    assert [*scene.got] == ["a", "b"]
    scene.got["a"].end()
    scene.deliver()
    assert [*scene.got] == ["a", "b", "c"]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock, which does not move otherwise."""
    return lambda time: monkeypatch.setattr(clock, "now", lambda: time)


#: How receiving ends.
ENDS: dict[str, Callable[[Scene], object]] = {
    "consumer": lambda scene: scene.consumer.cancel(),
    "channel": lambda scene: scene.channel.close(),
    "worker": lambda scene: end_polls(scene.heartbeat),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("comes_late", [False, True], ids=["waits", "arrives then"])
def test_what_has_not_reached_its_consumer_by_the_end_is_released_from_the_last(
    scene: Scene, end: str, *, comes_late: bool
) -> None:
    released: list[str] = []
    release = scene.keeper.release

    def note(handle: str, *args: Any, **options: Any) -> bool:
        released.append(handle)
        return release(handle, *args, **options)

    scene.keeper.release = note
    for step in (ENDS[end], lambda scene: scene.arrive("a", "b"))[:: 1 if comes_late else -1]:
        step(scene)
    assert {scene.fate(each) for each in "ab"} == {NOT_DELIVERED}
    assert released == (["a", "b"] if comes_late else ["b", "a"])
    scene.deliver()
    assert (scene.got, scene.heartbeat.arriving) == ({}, set())


@pytest.mark.parametrize("end", ["channel", "worker"])
def test_the_rest_of_a_turn_is_released_if_the_end_comes_amid_it(scene: Scene, end: str) -> None:
    def take_and_end(message: Any) -> None:
        scene.take(message)
        scene.got["a"].begin()
        ENDS[end](scene)

    scene.consume(take_and_end)
    scene.deliver("a", "b", "c")
    assert [scene.fate(each) for each in "abc"] == ["held", NOT_DELIVERED, NOT_DELIVERED]
    assert scene.heartbeat.arriving == set()


@pytest.mark.parametrize("fault", ["lost connection", "error", "unreadable"])
def test_an_error_at_a_delivery_releases_its_message_and_only_a_lost_connection_the_rest(
    new_scene: New, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    # The error may be a result backend's. Celery reports to it that a task has expired.
    scene, is_lost = new_scene(release_delay=7), fault == "lost connection"

    def fail_once(message: Any) -> None:
        if message.delivery_tag == "a":
            raise ConnectionResetError if is_lost else LookupError
        scene.take(message)

    scene.consume(fail_once)
    scene.arrive("a", body="{" if fault == "unreadable" else None)
    scene.arrive("b")
    if is_lost:
        with pytest.raises(ConnectionResetError):
            scene.connection.drain_events(timeout=0.0)
    else:
        scene.deliver()
    rest = NOT_DELIVERED if is_lost else "held"
    assert [scene.fate(each) for each in "ab"] == ["released 7 undeliverable", rest]
    assert scene.slots == (set() if is_lost else {"b"})
    assert scene.heartbeat.arriving == set()
    assert "message a of q can't be delivered, and is released like that" in caplog.text


@pytest.mark.parametrize("settle", ["release", "let_expire"])
def test_what_ended_on_its_way_is_not_delivered_and_leaves_its_room(
    scene: Scene, settle: str
) -> None:
    scene.arrive("a")
    getattr(scene.keeper, settle)("a")
    assert scene.rooms(scene.deliver) == [10]
    assert scene.got == {}


def test_a_consumer_that_was_closed_keeps_only_what_its_pool_runs(scene: Scene) -> None:
    scene.run("runs")
    scene.start("waits for a process")
    scene.deliver("waits for the pool")
    claimed = scene.deliver("starts just now")
    # A thread of the pool starts it right after the channel has looked whether it has.
    claimed.outlives_consumer = lambda: not claimed.claim_start()
    scene.channel.close()
    fates = {each: scene.fate(each) for each in scene.got}
    assert fates == {
        "runs": "held",
        "waits for a process": "released 0 consumer closed",
        "waits for the pool": "released 0 consumer closed",
        "starts just now": "held",
    }
    assert scene.heartbeat.feeds == {}


def test_each_channel_gets_its_own_messages_and_those_of_a_closed_one_are_released(
    scene: Scene,
) -> None:
    scene.arrive("a")
    other = scene.connection.channel()
    assert not other.feed.deliver()
    assert scene.channel.feed.deliver()
    # The keeper hands over what it had before it knew.
    del scene.heartbeat.feeds[1]
    scene.arrive("b")
    assert [scene.fate(each) for each in "ab"] == ["held", NOT_DELIVERED]


def test_a_queue_is_received_from_until_its_last_consumer_has_ended(scene: Scene) -> None:
    cancelled: list[str] = []
    scene.keeper.cancel = lambda channel, queue: cancelled.append(queue)
    second = scene.consume(scene.take)
    scene.consumer.cancel()
    assert cancelled == []
    second.cancel()
    assert cancelled == ["q"]


@pytest.mark.parametrize(
    ("queue", "settings", "batch"),
    [
        pytest.param("q", {"fifo_batch": 3}, 10, id="a standard queue"),
        pytest.param("q.fifo", {}, 1, id="the default"),
        pytest.param("q.fifo", {"fifo": "parallel"}, 10, id="nothing waits for its group"),
        pytest.param("q.fifo", {"fifo_batch": 4}, 4, id="set"),
        pytest.param("q.fifo", {"queues": {"q.fifo": {"fifo_batch": 7}}}, 7, id="for the queue"),
    ],
)
def test_the_keeper_is_asked_to_receive_as_the_settings_and_the_queue_say(
    new_scene: New, queue: str, settings: dict[str, Any], batch: int
) -> None:
    attributes = replace(ATTRIBUTES, max_receive_count=5)
    own = {"visibility_timeout": 40}
    scene = new_scene(queue=queue, attributes=attributes, task={"sqs_heartbeat": own}, **settings)
    (said,) = [each for each in scene.linked.elsewhere.inbox.messages if each[0] == "consume"]
    (asked,) = map(read_queue, said[2])
    assert (asked.name, asked.url, asked.lease_url) == (queue, url_of(queue), url_of(queue))
    assert (asked.batch, asked.timeout, asked.max_receive_count) == (batch, HIDDEN, 5)
    assert asked.terms.visibility_timeout == HIDDEN
    assert asked.task_terms["work"].visibility_timeout == 40
    assert asked.terms.in_order is (queue != "q" and "fifo" not in settings)
    # A lease has a whole threshold left after the longest poll.
    assert asked.wait == longest_wait(10, visibility_timeout=HIDDEN, threshold=10)
    assert "ApproximateReceiveCount" in asked.attributes["MessageSystemAttributeNames"]
    assert asked.attributes["MessageAttributeNames"] == [".*"]


@pytest.mark.parametrize(("state", "timeouts"), [("", [90]), ("cancelled", []), ("ending", [])])
def test_a_look_tells_the_keeper_what_has_changed_about_a_queue(
    scene: Scene, state: str, timeouts: list[int]
) -> None:
    followed: list[ConsumedQueue] = []
    scene.keeper.follow = lambda channel, queue: followed.append(queue)
    scene.attributes, scene.now = replace(ATTRIBUTES, visibility_timeout=90), REFRESH_SECONDS + 1
    if state == "cancelled":
        scene.consumer.cancel()
    scene.heartbeat.is_ending = state == "ending"
    # The first one has the attributes read again.
    scene.heartbeat.look()
    scene.heartbeat.look()
    assert [each.timeout for each in followed][-1:] == timeouts


@pytest.mark.parametrize("is_got", [True, False], ids=["Queue.get", "a no-ack queue"])
def test_messages_that_no_one_acks_are_not_leased(scene: Scene, *, is_got: bool) -> None:
    message = {"MessageId": "a", "ReceiptHandle": "a", "Attributes": {}, "Body": body_of("a")}
    scene.sqs.receive_message.return_value = {"Messages": [message]}
    scene.channel.asynsqs = lambda queue: scene.sqs
    queue, seen = Queue("q", channel=scene.channel), list[Any]()
    scene.consumer.cancel()
    if is_got:
        seen.append(queue.get())
        seen[0].ack()
    else:
        Consumer(scene.channel, [queue], on_message=seen.append, auto_declare=False).consume(True)
        scene.connection.drain_events(timeout=1)
    # kombu itself deletes it.
    assert scene.sqs.delete_message.called
    assert (len(seen), len(scene.keeper)) == (1, 0)


def test_an_event_loop_delivers_what_arrives(new_scene: New) -> None:
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    try:
        scene, loop = new_scene(), hub.create_loop()
        scene.arrive("a")
        wait_until(lambda: next(loop) or "a" in scene.got)
    finally:
        set_event_loop(before)
        hub.close()


def test_without_permission_to_count_its_messages_a_queue_is_declared(scene: Scene) -> None:
    denied = ClientError({"Error": {"Code": "AccessDenied"}}, "GetQueueAttributes")
    scene.sqs.get_queue_attributes.side_effect = denied
    assert Queue("q", channel=scene.channel).queue_declare().message_count == 0


def test_a_channel_has_leases_only_while_a_heartbeat_is_bound(scene: Scene) -> None:
    def connect() -> Connection:
        queues = {"predefined_queues": {"q": {"url": url_of("q")}}}
        return Connection("sqs://k:s@", transport=Transport, transport_options=queues)

    with connect() as made:
        channel = made.channel()
        assert type(channel) is FedChannel
        assert hasattr(channel.sqs("q"), sending._GUARDED)
        bind(None)
        assert type(made.channel()) is SQS.Channel
        with connect() as before:
            assert type(before.channel()) is SQS.Channel
            bind(scene.heartbeat)
            # Nothing would tell it that messages have arrived.
            assert type(before.channel()) is SQS.Channel


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        (None, [*REPORTED]),
        ("All", [*REPORTED]),
        (["SenderId", REPORTED[1]], ["SenderId", REPORTED[1], REPORTED[0], *REPORTED[2:]]),
        (
            {"MessageAttributeNames": ["tenant"]},
            {"MessageAttributeNames": ["tenant"], "MessageSystemAttributeNames": [*REPORTED]},
        ),
        ({"MessageSystemAttributeNames": "All"}, {"MessageSystemAttributeNames": "All"}),
    ],
)
def test_a_receive_requests_the_users_attributes_and_the_reported_ones(
    wanted: Any, asked: Any
) -> None:
    assert with_reported(wanted) == asked


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, {"read_timeout": 30.0, "max_pool_connections": 1_000}),
        ({"read_timeout": 3}, {"read_timeout": 30.0, "max_pool_connections": 1_000}),
        (
            {"read_timeout": 90, "max_pool_connections": 7},
            {"read_timeout": 90, "max_pool_connections": 7},
        ),
        (
            {"read_timeout": None, "connect_timeout": None, "max_pool_connections": 7},
            {
                "read_timeout": CLIENT_SECONDS,
                "connect_timeout": CLIENT_SECONDS,
                "max_pool_connections": 7,
            },
        ),
    ],
)
def test_every_call_has_a_timeout_longer_than_a_poll_and_every_poll_a_connection(
    given: dict[str, Any] | None, kept: dict[str, Any]
) -> None:
    options = {"region": "x", "client-config": given}
    before = repr(options)
    assert with_timeouts(options, wait=20) == {"region": "x", "client-config": kept}
    assert repr(options) == before
