"""The keeper for programs without Celery, by its documented API, on SQS servers.

A message is deleted when its block ends, and comes again if the block raises. Nothing is received
that can't be processed, and nothing is left behind at the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import pytest

from celery_sqs_heartbeat import (
    AlreadyHeld,
    ConfigurationError,
    LeaseKeeper,
    Message,
    SqsHeartbeatError,
)
from celery_sqs_heartbeat.consumer import hand_over
from celery_sqs_heartbeat.keeper import thread_keeper
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.testing import SimulatedServer
from tests.support.faults import fail, fail_entries
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE, wait_until

KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}


@dataclass
class World:
    """An SQS server behind a proxy, and what a program sees of it."""

    proxy: FaultProxy

    def __post_init__(self) -> None:
        self.client = self.proxy.client()
        self.events: list[Event] = []

    def queue(self, suffix: str = "") -> str:
        """Create a queue and return its URL."""
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if suffix else {}
        name = f"q-{uuid.uuid4().hex[:12]}{suffix}"
        return str(self.client.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"])

    def send(self, url: str, *bodies: str, **options: Any) -> None:
        for body in bodies:
            self.client.send_message(QueueUrl=url, MessageBody=body, **options)

    def sent(self, *bodies: str) -> str:
        """Create a queue with messages and return its URL."""
        url = self.queue()
        self.send(url, *bodies)
        return url

    def keeper(self, *queues: str, **options: Any) -> LeaseKeeper:
        # With this threshold an extension is due a second after the receive, and most of the
        # timeout is left in case the machine stalls.
        usual = {"visibility_timeout": 120, "threshold": 119, "wait_time": 1}
        usual |= {"observer": self.events.append, "endpoint_url": self.proxy.url}
        return LeaseKeeper(*queues, **{**usual, "region_name": "us-east-1", **KEYS, **options})

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events]

    def left(self, url: str) -> int:
        """Return how many messages the queue has, hidden or not."""
        return self.visible(url) + self._count(url, "ApproximateNumberOfMessagesNotVisible")

    def visible(self, url: str) -> int:
        """Return how many messages the queue would deliver now."""
        return self._count(url, "ApproximateNumberOfMessages")

    def _count(self, url: str, name: str) -> int:
        answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def released(self) -> list[int]:
        """Return the delays of the releases that SQS confirmed."""
        kind = EventKind.MESSAGE_RELEASED
        return [event.visibility_timeout for event in self.events if event.kind is kind]


@pytest.fixture(scope="module")
def simulated() -> Iterator[SimulatedServer]:
    with SimulatedServer() as server:
        yield server


@pytest.fixture
def world(simulated: SimulatedServer) -> Iterator[World]:
    with FaultProxy(simulated.url) as proxy:
        yield World(proxy)


def test_messages_are_extended_then_deleted_in_batches_or_received_again_if_their_block_raises(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.proxy.rule("DeleteMessageBatch", fail_entries(0.4, seed=3))
    url = world.sent("slow", "bad", *(f"m{number}" for number in range(8)))
    seen: list[tuple[str, int]] = []
    with world.keeper(url) as keeper:
        for message in keeper.messages():
            with message:
                seen.append((message.body, message.receive_count))
                assert message.owns()
                if message.body == "slow":
                    world.proxy.wait_for("ChangeMessageVisibilityBatch")
                if seen[-1] == ("bad", 1):
                    raise LookupError
            if len(seen) == 11:
                break
    assert world.left(url) == 0
    assert ("bad", 2) in seen
    assert "failed at its receive 1" in caplog.text
    batches = world.proxy.calls("DeleteMessageBatch")
    assert any((call.answer or {}).get("Failed") for call in batches)
    assert world.proxy.calls("DeleteMessage") == []


@pytest.mark.parametrize(("delay", "expected"), [(0, 0), (30, 30), (lambda count: 40 * count, 40)])
def test_a_failed_message_becomes_visible_after_the_release_delay(
    world: World, delay: Any, expected: int
) -> None:
    url = world.sent("a")
    with world.keeper(url, release_delay=delay) as keeper, next(keeper.messages()):
        raise LookupError
    # A release is for what is left of its delay, and the machine may stall before it is sent.
    released = world.released()[0]
    assert max(0, expected - 25) <= released <= expected


def test_a_message_may_be_released_or_deleted_before_its_block_ends(world: World) -> None:
    url = world.sent("later")
    with world.keeper(url) as keeper:
        with next(keeper.messages()) as message:
            message.release(600)
            message.delete()
            assert not message.owns()
        world.send(url, "done")
        with next(keeper.messages()) as message:
            message.delete()
            message.release()
            raise LookupError
    assert world.left(url) == 1
    assert world.visible(url) == 0


def test_an_interrupted_block_releases_its_message_at_once(world: World) -> None:
    url = world.sent("a")
    with (
        pytest.raises(KeyboardInterrupt),
        world.keeper(url, release_delay=60) as keeper,
        next(keeper.messages()),
    ):
        raise KeyboardInterrupt
    assert world.visible(url) == 1


def test_what_is_received_and_not_processed_is_released_at_the_end(world: World) -> None:
    url = world.sent("a", "b", "c")
    with world.keeper(url) as keeper:
        loops = [keeper.messages() for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            messages = list(pool.map(next, loops))
        with messages[0]:
            pass
    assert world.visible(url) == 2
    with pytest.raises(AlreadyHeld, match="no longer held here"), messages[1]:
        pytest.fail("the block must not run")


def test_no_more_is_received_than_can_be_processed_at_once(world: World) -> None:
    url = world.sent(*"abcde")
    with world.keeper(url, max_messages=2) as keeper, ThreadPoolExecutor(1) as pool:
        loop = keeper.messages()
        with next(loop), next(loop) as second:
            # Polls that had brought more would have been answered before the second message.
            assert world.visible(url) == 3
            third = pool.submit(next, loop)
            world.proxy.wait_for("ChangeMessageVisibilityBatch")
            assert not third.done()
            second.delete()
            assert third.result(PATIENCE).body in "abcde"


def test_nothing_is_received_while_deletes_pile_up(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_keeper, "MAX_ENDING", 2)
    url = world.sent(*(str(number) for number in range(9)))
    world.proxy.rule("DeleteMessageBatch", fail(500))
    with ThreadPoolExecutor() as pool, world.keeper(url, max_messages=1) as keeper:

        def work() -> None:
            for message in keeper.messages():
                with message:
                    pass

        working = pool.submit(work)
        wait_until(lambda: "are not confirmed: consuming pauses" in caplog.text)
        assert world.visible(url) > 0
        world.proxy.clear()
        wait_until(lambda: world.left(url) == 0)
        assert "not confirmed: consuming continues" in caplog.text
        keeper.stop()
        working.result(PATIENCE)


def test_nothing_is_received_while_the_keeper_is_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(ThreadKeeper, "is_late", True)
    url = world.sent("a")
    with ThreadPoolExecutor() as pool, world.keeper(url) as keeper:
        coming = pool.submit(next, keeper.messages())
        assert not wait([coming], 0.2).done
        monkeypatch.setattr(ThreadKeeper, "is_late", False)
        with coming.result(PATIENCE) as message:
            assert message.receive_count == 1


def test_message_groups_are_processed_in_order_although_the_observer_and_a_message_fail(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: Event) -> None:
        raise LookupError(event.kind.value)

    url = world.queue(".fifo")
    for body in ("a1", "a2", "b1", "a3", "b2"):
        world.send(url, body, MessageGroupId=body[0])
    order: list[str] = []
    running: set[str] = set()

    def handle(message: Message) -> None:
        with message:
            group = message.body[0]
            assert group not in running
            running.add(group)
            order.append(message.body)
            running.remove(group)
            if (message.body, message.receive_count) == ("a2", 1):
                raise LookupError

    with world.keeper(url, observer=fail) as keeper, ThreadPoolExecutor(4) as pool:
        for message in keeper.messages():
            pool.submit(handle, message).result(PATIENCE)
            if len(order) == 6:
                break
    # A failure stops its message group until it is received again.
    assert [body for body in order if body[0] == "a"] == ["a1", "a2", "a2", "a3"]
    assert [body for body in order if body[0] == "b"] == ["b1", "b2"]
    assert world.left(url) == 0
    assert "an observer failed on message-deleted" in caplog.text


def test_closing_waits_for_blocks_that_run(world: World) -> None:
    url = world.sent("a")
    keeper = world.keeper(url)
    message = next(keeper.messages())
    with ThreadPoolExecutor(1) as pool:
        with message:
            closed = pool.submit(keeper.close, PATIENCE)
            # Loops end before it waits for this block.
            assert list(keeper.messages()) == []
            assert not closed.done()
        assert closed.result(PATIENCE)
    assert world.left(url) == 0


def test_a_message_received_again_while_it_is_processed_is_not_processed_twice(
    world: World,
) -> None:
    url = world.sent("a")
    with world.keeper(url) as keeper:
        loop = keeper.messages()
        with next(loop) as message:
            handle = message.raw["ReceiptHandle"]
            world.client.change_message_visibility(
                QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0
            )
            with ThreadPoolExecutor(1) as pool:
                again = pool.submit(next, loop)
                wait_until(lambda: world.kinds().count(EventKind.MESSAGE_RECEIVED) == 2)
                assert not again.done()
                assert message.owns()
                world.send(url, "b")
                assert again.result(PATIENCE).body == "b"


@pytest.mark.parametrize("how", ["end", "cancel"])
def test_an_asyncio_program_iterates_over_several_queues_and_ends(world: World, how: str) -> None:
    urls = [world.sent(name) for name in "abc"]
    seen: dict[str, str] = {}

    async def handle(message: Message) -> None:
        async with message:
            await asyncio.sleep(0)
            seen[message.queue_url] = message.body

    async def consume() -> None:
        async with world.keeper(*urls) as keeper:
            tasks = set()
            async for message in keeper.messages():
                tasks.add(asyncio.create_task(handle(message)))
                if len(tasks) == 3 and how == "end":
                    keeper.stop()
            await asyncio.gather(*tasks)

    async def main() -> None:
        consuming = asyncio.create_task(consume())
        if how == "cancel":
            while len(seen) < 3:
                await asyncio.sleep(0.02)
            consuming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await consuming
        else:
            await consuming

    asyncio.run(main())
    assert seen == dict(zip(urls, "abc", strict=True))
    assert sum(map(world.left, urls)) == 0


PROGRAM = """
import sys, threading
from celery_sqs_heartbeat import LeaseKeeper

url, endpoint = sys.argv[1:]
with LeaseKeeper(url, endpoint_url=endpoint, region_name="us-east-1", wait_time=1) as keeper:
    for message in keeper.messages():
        with message:
            print("begun", message.body, flush=True)
            if message.body == "long":
                sys.stdin.readline()
            print("ended", message.body, flush=True)
print("closed", flush=True)
"""


def test_a_signal_lets_the_block_end_and_then_the_program(world: World) -> None:
    url = world.sent("long")
    environment = {**os.environ, **{name.upper(): value for name, value in KEYS.items()}}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, world.proxy.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as program:
        assert program.stdin
        assert program.stdout
        assert program.stdout.readline() == "begun long\n"
        program.send_signal(signal.SIGTERM)
        world.send(url, "more")
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.read() == "ended long\nclosed\n"
    assert program.returncode == 0
    assert world.left(url) == world.visible(url) == 1


def test_signals_act_as_before_once_the_keeper_is_closed(world: World) -> None:
    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    before = handlers()
    with world.keeper(world.queue()) as keeper:
        keeper.messages()
        assert not set(handlers()) & set(before)
    assert handlers() == before
    with world.keeper(world.queue(), signals=()) as keeper:
        keeper.messages()
        assert handlers() == before


def received(world: World, url: str) -> dict[str, Any]:
    """Receive a message as a program of its own does."""
    found: list[dict[str, Any]] = []

    def poll() -> bool:
        answer = world.client.receive_message(
            QueueUrl=url, VisibilityTimeout=120, AttributeNames=["All"], WaitTimeSeconds=1
        )
        found.extend(answer.get("Messages", ()))
        return bool(found)

    wait_until(poll)
    return found[0]


def test_a_message_that_the_program_received_is_held_and_deleted(world: World) -> None:
    url = world.sent("a")
    with world.keeper() as keeper:
        sent_at = keeper.now()
        with keeper.hold(url, received(world, url), sent_at=sent_at) as message:
            assert message.body == "a"
            world.proxy.wait_for("ChangeMessageVisibilityBatch")
            assert len(keeper) == 1
            assert keeper.health.alive
            (view,) = keeper.snapshot()
            assert view.running_for is not None
    assert world.left(url) == 0


def test_a_message_that_is_processed_here_already_is_not_held_twice(world: World) -> None:
    url = world.sent("a")
    with world.keeper() as keeper:
        raw = received(world, url)
        with keeper.hold(url, raw), pytest.raises(AlreadyHeld, match="redelivered: skip it"):
            keeper.hold(url, {**raw, "ReceiptHandle": "another"})


def test_a_closed_keeper_takes_no_more_messages(world: World) -> None:
    with world.keeper() as keeper:
        pass
    for use in (keeper.messages, lambda: keeper.hold("url", {}), keeper.__enter__):
        with pytest.raises(SqsHeartbeatError, match="is closed: make another"):
            use()
    assert not keeper.health.alive
    assert keeper.close()


def test_a_forked_child_can_use_no_keeper_of_its_parent(world: World) -> None:
    url = world.sent("a")
    with world.keeper(url) as keeper, next(keeper.messages()) as message:
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (keeper.messages, lambda: keeper.hold(url, message.raw)):
                try:
                    use()
                except SqsHeartbeatError:
                    refused += 1
            message.delete()
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 2
        assert message.owns()
    assert world.left(url) == 0


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"visibility_timeout": 0}, "visibility_timeout=0: must be a whole number of seconds"),
        ({"visibility_timeout": 43_201}, "visibility_timeout=43201: must be a whole"),
        ({"visibility_timeout": "30"}, "visibility_timeout='30': must be a whole"),
        ({"threshold": 30}, "threshold=30: must be above 0 and below the visibility_timeout"),
        ({"threshold": 0}, "threshold=0: must be above 0"),
        ({"max_messages": 0}, "max_messages=0: must be a whole number above 0"),
        ({"wait_time": 21}, "wait_time=21: must be a whole number of seconds from 0 to 20"),
        ({"release_delay": -1}, "release_delay=-1: must be a number of seconds"),
        ({"release_delay": "soon"}, "release_delay='soon': must be a number of seconds"),
        ({"max_messages": 0, "wait_time": -1, "release_delay": -1}, "3 settings are wrong"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LeaseKeeper("work", region_name="us-east-1", **options)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("queues", "fault"),
    [
        ((), "name the queues to receive from"),
        (("missing",), "LeaseKeeper('missing'): SQS knows no such queue in us-east-1"),
    ],
)
def test_without_an_existing_queue_there_are_no_messages(
    world: World, queues: tuple[str, ...], fault: str
) -> None:
    with world.keeper(*queues) as keeper, pytest.raises(ConfigurationError) as caught:
        keeper.messages()
    assert fault in str(caught.value)
