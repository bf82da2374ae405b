"""What the channels of a worker share as they receive, and what is left when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import MOST_HANGING, NOT_DELIVERED, WORKER_DIED
from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived
from celery_sqs_heartbeat.receiving.reception import Reception
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.testing import SimulatedSqs
from tests.support.waiting import PATIENCE, wait_until

STANDARD, FIFO = "https://sqs/1/orders", "https://sqs/1/orders.fifo"
TIMEOUT = 600
TERMS = LeaseTerms.of(TIMEOUT)


def consumed(url: str, **more: Any) -> ConsumedQueue:
    terms = replace(TERMS, in_order=url is FIFO)
    name = url.rpartition("/")[2]
    return ConsumedQueue(
        name=name, url=url, lease_url=url, terms=terms, timeout=TIMEOUT, wait=20, **more
    )


def message(name: str, *, group: str | None = None, count: int = 1) -> dict[str, Any]:
    """Return a message. A name in a group ends with the message's number."""
    attributes = {"ApproximateReceiveCount": str(count)}
    if group:
        attributes |= {"MessageGroupId": group, "SequenceNumber": name[1:]}
    return {"MessageId": name, "ReceiptHandle": name, "Body": "{}", "Attributes": attributes}


class Scene:
    """A keeper and its reception. The test answers its polls, one after the other.

    Attributes:
        taken: The messages that were handed over, each with its channel.
        released: Those that were released, with their delay and cause, in this order.
        sender: What sends messages again.
    """

    def __init__(self) -> None:
        self.keeper = ThreadKeeper(SimulatedSqs())
        self.answers: SimpleQueue[Any] = SimpleQueue()
        self.asked: SimpleQueue[str] = SimpleQueue()
        self.taken: list[tuple[int, str]] = []
        self.released: list[tuple[str, float, str]] = []
        self.sender = Mock()
        release = self.keeper.release

        def note(handle: str, delay: float = 0, cause: str = "") -> bool:
            self.released.append((handle, delay, cause))
            return release(handle, delay, cause)

        self.keeper.release = note  # type: ignore[method-assign]
        client = SimpleNamespace(receive_message=self._receive)
        self.reception = Reception(
            self.keeper,
            sqs=BotoSqs(client, client),
            sender=self.sender,
            deliver=self._take,
            keep=lambda messages: None,
            most_waiting=90,
            concurrency=1,
        )

    def consume(self, *queues: ConsumedQueue, channel: int = 1, limit: int = 10) -> None:
        """Consume, and wait until there is a poll of each queue."""
        self.reception.consume(channel, queues)
        self.reception.allow(channel, limit, 10)
        for _ in queues:
            self.asked.get(timeout=PATIENCE)

    def answer(self, *messages: dict[str, Any]) -> None:
        """Answer a poll, and wait until the messages are leased or released."""
        known = len(self.keeper) + len(messages)
        self.answers.put({"Messages": list(messages)})
        wait_until(lambda: len(self.keeper) == known)

    def end(self) -> None:
        self.reception.end()
        while self.reception.polls:
            self.answers.put({})
            self.reception.join()

    def held(self) -> list[str]:
        return [each.message_id for each in self.keeper.leases() if each.goal is Goal.HOLD]

    def _receive(self, **asked: Any) -> Any:
        self.asked.put(asked["QueueUrl"])
        return self.answers.get(timeout=PATIENCE)

    def _take(self, channel: int, messages: list[Arrived]) -> int:
        self.taken += [(channel, each.handle) for each in messages]
        return 0


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.end()


@pytest.mark.parametrize(
    ("is_urgent", "cause"),
    [pytest.param(False, "shutdown", id="shutdown"), pytest.param(True, WORKER_DIED, id="death")],
)
def test_messages_that_wait_for_their_group_are_released_at_the_end_from_the_last(
    scene: Scene, *, is_urgent: bool, cause: str
) -> None:
    scene.consume(consumed(FIFO))
    scene.answer(*(message(f"m{number}", group="g") for number in (1, 2, 3)))
    wait_until(lambda: scene.taken)
    scene.reception.is_urgent = is_urgent
    scene.reception.end()
    assert [(name, why) for name, _, why in scene.released] == [("m3", cause), ("m2", cause)]
    assert scene.held() == ["m1"]
    # The poll that is open would receive them. It does not keep those of a dead worker.
    assert all((delay == 0) is is_urgent for _, delay, _ in scene.released)


def test_the_next_of_a_group_has_its_turn_though_another_channel_received_it(scene: Scene) -> None:
    other = consumed(STANDARD)
    scene.consume(consumed(FIFO), limit=1)
    scene.answer(*(message(f"m{number}", group="g") for number in (1, 2)))
    scene.consume(other, channel=2)
    wait_until(lambda: scene.taken == [(1, "m1")])
    lease = scene.keeper.find("m1")
    assert lease is not None
    lease.is_deleted = True
    scene.keeper.let_expire("m1")
    scene.reception.take_turns()
    assert scene.taken == [(1, "m1"), (1, "m2")]


def test_channels_look_for_turns_only_while_messages_wait_for_their_group(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []
    monkeypatch.setattr(Reception, "look", lambda self: looks.append(None))
    scene.consume(consumed(FIFO))
    scene.reception.take_turns()
    assert looks == []
    scene.answer(*(message(f"m{number}", group="g") for number in (1, 2)))
    wait_until(lambda: scene.taken)
    scene.reception.take_turns()
    assert looks == [None]


@pytest.mark.parametrize(
    ("url", "more", "is_sent_again"),
    [
        pytest.param(STANDARD, {}, True, id="on its last receive"),
        pytest.param(STANDARD, {"count": 2}, False, id="with a receive left"),
        # It would be behind the other messages of its group.
        pytest.param(FIFO, {"group": "g"}, False, id="of a FIFO queue"),
    ],
)
def test_a_message_that_no_one_takes_is_sent_again_if_its_release_would_make_it_a_dead_letter(
    scene: Scene, url: str, more: dict[str, Any], *, is_sent_again: bool
) -> None:
    scene.consume(consumed(url, max_receive_count=3))
    scene.reception.end()
    scene.answer(message("m1", **{"count": 3, **more}))
    if is_sent_again:
        wait_until(lambda: scene.sender.send_again.called)
        handle, content, delay, cause = scene.sender.send_again.call_args.args
        assert (handle, content["MessageBody"], delay, cause) == ("m1", "{}", 0, NOT_DELIVERED)
        assert scene.released == []
    else:
        wait_until(lambda: scene.released)
        assert scene.released == [("m1", 0.0, NOT_DELIVERED)]


@pytest.mark.parametrize("end", [Reception.end, lambda reception: reception.close(1)])
def test_an_open_poll_is_known_until_its_answer_after_the_end(
    scene: Scene, end: Callable[[Reception], object]
) -> None:
    scene.consume(consumed(STANDARD))
    (poll,) = scene.reception.polls
    end(scene.reception)
    # Others are closed meanwhile.
    for channel in (2, 3):
        scene.reception.consume(channel, [])
        scene.reception.close(channel)
    assert scene.reception.polls == [poll]
    scene.answers.put({})
    wait_until(lambda: scene.reception.polls == [])


@pytest.mark.parametrize("url", [STANDARD, FIFO])
def test_what_the_poll_of_a_lost_connection_brings_goes_to_the_next_one(
    scene: Scene, url: str
) -> None:
    scene.consume(consumed(url, max_receive_count=3))
    scene.reception.close(1)
    lease = Mock(queue_url=url, has_few_receives=False)
    assert scene.reception.poll_left(lease) > 0
    scene.reception.consume(2, [consumed(url, max_receive_count=3)])
    assert scene.reception.poll_left(lease) == 0
    scene.answer(message("m1", count=3, group="g" if url is FIFO else None))
    wait_until(lambda: scene.taken == [(2, "m1")])
    assert scene.released == []


def test_the_next_connection_has_no_room_for_what_the_poll_of_a_lost_one_may_bring(
    scene: Scene,
) -> None:
    scene.consume(consumed(STANDARD))
    scene.reception.close(1)
    scene.reception.consume(2, [consumed(STANDARD)])
    scene.reception.allow(2, 10, 10)
    assert [each.count for each in scene.reception.polls] == [10]
    scene.answer(message("m1"), message("m2"))
    wait_until(lambda: not scene.reception.polls)
    scene.reception.look()
    assert [each.count for each in scene.reception.polls] == [8]


def test_a_queue_of_which_no_more_calls_are_made_is_not_polled(scene: Scene) -> None:
    hanging = scene.keeper._hanging = dict.fromkeys(range(MOST_HANGING), STANDARD)
    scene.reception.consume(1, [consumed(STANDARD), consumed(FIFO)])
    scene.reception.allow(1, 10, 10)
    assert scene.asked.get(timeout=PATIENCE) == FIFO
    wait_until(lambda: any(poll.is_over for poll in scene.reception.polls))
    assert scene.asked.empty()
    del hanging[0]
    assert scene.asked.get(timeout=PATIENCE) == STANDARD


def test_after_the_end_nothing_is_received_for_any_channel(scene: Scene) -> None:
    scene.consume(consumed(STANDARD))
    scene.reception.end()
    scene.answers.put({})
    wait_until(lambda: not scene.reception.polls)
    scene.reception.consume(2, [consumed(STANDARD)])
    for channel in (1, 2):
        scene.reception.allow(channel, 20, 10)
    scene.reception.look()
    assert scene.reception.polls == []
    assert scene.reception.join()
    assert scene.asked.empty()
