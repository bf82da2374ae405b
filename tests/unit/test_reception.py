"""What a worker's channels receive: which polls they send for their room, and what ends with them.

No message is lost or made a dead letter because its channel, its consumer or its worker has ended.
"""

from __future__ import annotations

import itertools
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
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.observe.watched import PolledQueue, PolledQueues
from celery_sqs_heartbeat.receiving.reception import Reception
from celery_sqs_heartbeat.sqs import long_polls
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.scripts import pairs, table

STANDARD, FIFO = "https://sqs/1/orders", "https://sqs/1/orders.fifo"
TIMEOUT, WAIT = 600, 20
UNLIMITED = 1 << 40


def consumed(url: str, **more: Any) -> ConsumedQueue:
    terms = replace(LeaseTerms.of(TIMEOUT), in_order=url is FIFO)
    given = {"name": url.rpartition("/")[2], "url": url, "lease_url": url, "terms": terms}
    return ConsumedQueue(**given, timeout=TIMEOUT, wait=WAIT, **more)


class HeldPoll:
    """A receive that waits until the test answers it."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.url, self.asked = asked["QueueUrl"], asked
        self.count, self.waits = asked["MaxNumberOfMessages"], asked["WaitTimeSeconds"]
        self.result: SimpleQueue[Any] = SimpleQueue()


class Scene:
    """A keeper and its reception. The test answers its polls.

    Attributes:
        open: The polls that wait, those that wait for long first.
        taken: The messages that were handed over, each with its channel.
        released: Those that were released, with their delay and cause, in this order.
        sender: What sends messages again.
    """

    def __init__(self, *, most_waiting: int = 90, concurrency: int = 1) -> None:
        self.keeper = ThreadKeeper(SimulatedSqs())
        self._polls: list[HeldPoll] = []
        self._names = itertools.count(1)
        self._is_over = False
        self.taken: list[tuple[int, str]] = []
        self.released: list[tuple[str, float, str]] = []
        self.sender = Mock()
        self._release = self.keeper.release
        self.keeper.release = self._note  # type: ignore[method-assign]
        client = SimpleNamespace(receive_message=self._receive)
        self.reception = Reception(
            self.keeper,
            sqs=BotoSqs(client, client),
            sender=self.sender,
            deliver=self._take,
            keep=lambda messages: None,
            most_waiting=most_waiting,
            concurrency=concurrency,
        )

    @property
    def open(self) -> list[HeldPoll]:
        return sorted(self._polls, key=lambda poll: -poll.waits)

    def counts(self) -> list[int]:
        return sorted(poll.count for poll in self._polls)

    def consume(
        self, *queues: ConsumedQueue, channel: int = 1, limit: int = 10, prefetch: int = 10
    ) -> None:
        """Consume, and wait until there is a poll of each queue."""
        self.reception.consume(channel, queues)
        self.reception.allow(channel, limit, prefetch)
        wait_until(lambda: {each.url for each in queues} <= {poll.url for poll in self._polls})
        self.settle()

    def settle(self) -> None:
        """Wait until each poll that is not put off has been sent."""
        wait_until(
            lambda: (
                len(self._polls)
                == sum(not (poll.wanted or poll.is_over) for poll in self.reception.polls)
            )
        )

    def answer(self, poll: HeldPoll, *messages: dict[str, Any], count: int = 0) -> None:
        """Answer a poll, or refuse it, and wait until its messages are leased or released."""
        named = (*messages, *(message(f"n{next(self._names)}") for _ in range(count)))
        known = len(self.keeper) + len(named)
        self.end_poll(poll, {"Messages": list(named)})
        wait_until(lambda: len(self.keeper) == known)
        self.settle()

    def end_poll(self, poll: HeldPoll, result: Any) -> None:
        self._polls.remove(poll)
        poll.result.put(result)

    def end(self) -> None:
        self._is_over = True
        self.reception.end()
        for waiting in self.reception.polls:
            waiting.grown.set()
        for poll in self.open:
            self.end_poll(poll, {})
        assert self.reception.join()

    def held(self) -> list[str]:
        return [each.message_id for each in self.keeper.leases() if each.goal is Goal.HOLD]

    def _receive(self, **asked: Any) -> Any:
        poll = HeldPoll(asked)
        if self._is_over:
            return {}
        self._polls.append(poll)
        result = poll.result.get(timeout=PATIENCE)
        if isinstance(result, Exception):
            raise result
        return result

    def _take(self, channel: int, messages: list[Arrived]) -> int:
        self.taken += [(channel, each.handle) for each in messages]
        return 0

    def _note(self, handle: str, delay: float = 0, cause: str = "") -> bool:
        self.released.append((handle, delay, cause))
        return self._release(handle, delay, cause)


def message(name: str, *, group: str | None = None, count: int = 1) -> dict[str, Any]:
    """Return a message. A name in a group ends with the message's number."""
    attributes = {"ApproximateReceiveCount": str(count)}
    if group:
        attributes |= {"MessageGroupId": group, "SequenceNumber": name[1:]}
    return {"MessageId": name, "ReceiptHandle": name, "Body": "{}", "Attributes": attributes}


@pytest.fixture
def new_scene() -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(**options: int) -> Scene:
        made.append(Scene(**options))
        return made[-1]

    yield make
    for scene in made:
        scene.end()


@pytest.fixture
def scene(new_scene: Callable[..., Scene]) -> Scene:
    return new_scene()


NewScene = Callable[..., Scene]

# -- Which polls ---------------------------------------------------------------------------------


def test_a_poll_asks_for_what_its_queue_says(scene: Scene) -> None:
    scene.consume(consumed(STANDARD, attributes={"AttributeNames": ["All"]}))
    assert scene.open[0].asked == {
        "QueueUrl": STANDARD,
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": WAIT,
        "VisibilityTimeout": TIMEOUT,
        "AttributeNames": ["All"],
    }


@pytest.mark.parametrize(
    ("prefetch", "requested"),
    [
        (10, []),
        (12, [2]),
        # Four more would not be worth a receive: an additional poll asks for at least a quarter of
        # the prefetch count, or ten messages.
        (24, [10]),
        (30, [10, 10]),
        (200, [10] * 4),
        # worker_prefetch_multiplier=0
        (0, [10] * 4),
    ],
)
def test_after_a_full_answer_a_queue_has_as_many_polls_as_its_prefetch_has_room_for(
    scene: Scene, prefetch: int, requested: list[int]
) -> None:
    scene.consume(consumed(STANDARD), limit=prefetch or UNLIMITED, prefetch=prefetch)
    scene.answer(scene.open[0], count=10)
    wait_until(lambda: scene.counts() == requested)
    assert [poll.waits for poll in scene.open] == [WAIT, 1, 1, 1][: len(requested)]


@pytest.mark.parametrize(
    ("concurrency", "last", "acked", "requested"),
    [
        pytest.param(2, 10, 4, [], id="messages wait for the pool: not worth a receive yet"),
        pytest.param(2, 10, 5, [5], id="and worth one"),
        pytest.param(20, 10, 1, [1], id="all run"),
        pytest.param(16, 10, 1, [1], id="few wait"),
        pytest.param(0, 10, 1, [1], id="not known"),
        pytest.param(2, 9, 0, [1], id="the last answer was not full"),
    ],
)
def test_a_poll_of_a_worker_with_enough_to_do_waits_until_it_is_worth_a_receive(
    new_scene: NewScene,
    monkeypatch: pytest.MonkeyPatch,
    concurrency: int,
    last: int,
    acked: int,
    requested: list[int],
) -> None:
    monkeypatch.setattr(long_polls, "_GATHER_SECONDS", 10 * PATIENCE)
    scene = new_scene(concurrency=concurrency)
    scene.consume(consumed(STANDARD), limit=20, prefetch=20)
    for count in (10, last):
        scene.answer(scene.open[0], count=count)
    scene.reception.allow(1, 20 + acked, 20)
    wait_until(lambda: scene.counts() == requested)


@pytest.mark.parametrize(
    ("batch", "waiting", "first", "requested"),
    [
        # All but one message of a poll may have to wait for another of their group.
        (1, 90, 1, [1] * 4),
        (4, 5, 4, [1, 1, 3, 4]),
        (4, 0, 1, [1]),
    ],
)
def test_the_polls_of_a_queue_kept_in_order_ask_for_no_more_than_has_room_to_wait_for_a_turn(
    new_scene: NewScene, batch: int, waiting: int, first: int, requested: list[int]
) -> None:
    scene = new_scene(most_waiting=waiting)
    scene.consume(consumed(FIFO, batch=batch), limit=20, prefetch=20)
    assert scene.counts() == [first]
    scene.answer(scene.open[0], *(message(f"m{n}", group=f"g{n}") for n in range(first)))
    wait_until(lambda: scene.counts() == requested)


@pytest.mark.parametrize(
    ("name", "stops", "goes_on"), [("is_late", True, False), ("ending", 1_000, 999)]
)
def test_polls_stop_while_the_keeper_is_behind_and_its_queue_is_not_deaf_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str, stops: object, goes_on: object
) -> None:
    monkeypatch.setattr(long_polls, "FIRST_PAUSE", 0.001)
    scene.consume(consumed(STANDARD))
    for failed in (1, 2):
        scene.end_poll(scene.open[0], OSError())
        wait_until(lambda: scene.open)
        (seen,) = scene.reception.polled.view()
        assert (seen.queue, seen.unanswered) == ("orders", failed)
    monkeypatch.setattr(ThreadKeeper, name, stops)
    scene.answer(scene.open[0])
    scene.reception.look()
    assert scene.open == list(scene.reception.polls) == []
    monkeypatch.setattr(ThreadKeeper, name, goes_on)
    scene.reception.look()
    wait_until(lambda: scene.counts() == [10])


def test_a_queue_of_which_no_more_calls_are_made_is_not_polled(scene: Scene) -> None:
    hanging = scene.keeper._hanging = dict.fromkeys(range(MOST_HANGING), STANDARD)
    scene.reception.consume(1, [consumed(STANDARD), consumed(FIFO)])
    scene.reception.allow(1, 10, 10)
    wait_until(lambda: any(poll.is_over for poll in scene.reception.polls) and scene.open)
    assert [poll.url for poll in scene.open] == [FIFO]
    del hanging[0]
    wait_until(lambda: {poll.url for poll in scene.open} == {FIFO, STANDARD})


# -- Their end -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_urgent", "cause"), [(False, "shutdown"), (True, WORKER_DIED)])
def test_messages_that_wait_for_their_group_are_released_at_the_end_from_the_last(
    scene: Scene, is_urgent: bool, cause: str
) -> None:
    scene.consume(consumed(FIFO, batch=3))
    scene.answer(scene.open[0], *(message(f"m{number}", group="g") for number in (1, 2, 3)))
    wait_until(lambda: scene.taken)
    scene.reception.is_urgent = is_urgent
    scene.reception.end()
    assert [(name, why) for name, _, why in scene.released] == [("m3", cause), ("m2", cause)]
    assert scene.held() == ["m1"]
    # The poll that is open would receive them. It does not keep those of a dead worker.
    assert all((delay == 0) is is_urgent for _, delay, _ in scene.released)


def test_the_next_of_a_group_has_its_turn_though_its_channel_has_no_room(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.consume(consumed(FIFO, batch=2), limit=2)
    scene.consume(consumed(STANDARD), channel=2)
    fifo = next(poll for poll in scene.open if poll.url == FIFO)
    scene.answer(fifo, *(message(f"m{number}", group="g") for number in (1, 2)))
    wait_until(lambda: scene.taken == [(1, "m1")])
    lease = scene.keeper.find("m1")
    assert lease is not None
    lease.is_deleted = True
    scene.keeper.let_expire("m1")
    scene.reception.take_turns()
    assert scene.taken == [(1, "m1"), (1, "m2")]
    # Channels look only while messages wait for their group.
    monkeypatch.setattr(Reception, "look", lambda self: pytest.fail("none waits"))
    scene.reception.take_turns()


@pytest.mark.parametrize(
    ("url", "count", "is_sent_again"),
    [
        pytest.param(STANDARD, 3, True, id="on its last receive"),
        pytest.param(STANDARD, 2, False, id="with a receive left"),
        # It would be behind the other messages of its group.
        pytest.param(FIFO, 3, False, id="of a FIFO queue"),
    ],
)
def test_a_message_that_no_one_takes_is_sent_again_if_its_release_would_make_it_a_dead_letter(
    scene: Scene, url: str, count: int, is_sent_again: bool
) -> None:
    scene.consume(consumed(url, max_receive_count=3))
    scene.reception.end()
    scene.answer(scene.open[0], message("m1", count=count, group="g" if url is FIFO else None))
    if is_sent_again:
        wait_until(lambda: scene.sender.send_again.called)
        handle, content, delay, cause = scene.sender.send_again.call_args.args
        assert (handle, content["MessageBody"], delay, cause) == ("m1", "{}", 0, NOT_DELIVERED)
    else:
        wait_until(lambda: scene.released)
    assert scene.released == ([] if is_sent_again else [("m1", 0.0, NOT_DELIVERED)])


def test_what_the_poll_of_a_lost_connection_brings_goes_to_the_next_and_takes_its_room(
    scene: Scene,
) -> None:
    scene.consume(consumed(STANDARD))
    (poll,) = scene.reception.polls
    scene.reception.close(1)
    # Others are closed meanwhile.
    scene.reception.consume(3, [])
    scene.reception.close(3)
    assert scene.reception.polls == [poll]
    lease = Mock(queue_url=STANDARD, has_few_receives=False)
    assert scene.reception.poll_left(lease) > 0
    scene.reception.consume(2, [consumed(STANDARD)])
    scene.reception.allow(2, 10, 10)
    assert scene.reception.poll_left(lease) == 0
    assert scene.counts() == [10]
    scene.answer(scene.open[0], message("m1"), message("m2"))
    wait_until(lambda: scene.taken == [(2, "m1"), (2, "m2")] and not scene.reception.polls)
    assert scene.released == []
    scene.reception.look()
    wait_until(lambda: scene.counts() == [8])


def test_a_release_is_not_put_off_for_a_dead_worker_unless_it_has_few_receives_left(
    scene: Scene,
) -> None:
    scene.consume(consumed(STANDARD))
    scene.reception.is_urgent = True
    scene.reception.end()
    few, many = (Mock(queue_url=STANDARD, has_few_receives=each) for each in (True, False))
    assert scene.reception.poll_left(few) > 10
    assert scene.reception.poll_left(many) == 0


def test_after_the_end_nothing_is_received_for_any_channel(scene: Scene) -> None:
    scene.consume(consumed(STANDARD))
    scene.reception.end()
    scene.answer(scene.open[0])
    scene.reception.consume(2, [consumed(STANDARD)])
    for channel in (1, 2):
        scene.reception.allow(channel, 20, 10)
    scene.reception.look()
    assert scene.reception.polls == []
    assert scene.reception.join()


def test_a_consumer_that_is_cancelled_receives_no_more(scene: Scene) -> None:
    scene.consume(consumed(STANDARD))
    scene.reception.cancel(1, "orders")
    scene.answer(scene.open[0], message("m1"))
    wait_until(lambda: scene.released == [("m1", 0.0, NOT_DELIVERED)])
    scene.reception.allow(1, 20, 10)
    assert scene.reception.polls == []


def test_messages_without_both_ids_are_ignored(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.consume(consumed(STANDARD))
    scene.end_poll(scene.open[0], {"Messages": [{"MessageId": "x"}, None, message("m1")]})
    wait_until(lambda: "2 of 3 messages received from orders have no message id" in caplog.text)
    assert scene.taken == [(1, "m1")]


# -- What is known of the polls ------------------------------------------------------------------

#: A queue that was asked at second 0.
POLLED = """
the age counts from the first poll, and then from the last answer:
    +5 asked; is age=5 unanswered=0 deaf=no; answered; +3 is age=3
a queue is deaf if its polls failed for a minute:
    fails 59 1; is deaf=no; fails 1 1; is deaf=yes; answered; is deaf=no unanswered=60
and if more than one did:
    fails 1 61; is deaf=no; answered; fails 2 30; is deaf=yes
time alone makes no queue deaf:
    fails 2 1; +3600 is deaf=no
that of a worker that ends has no age, and is not deaf:
    fails 2 30; rest_all; is age=none unanswered=2 deaf=no
one that is consumed from again after a lost connection is deaf until an answer:
    fails 2 30; rest; asked; is age=60 deaf=yes; answered; rest; +5 is age=none; asked;
    is age=0 deaf=no
one that waits for room is not deaf, and deaf again after one more poll that failed:
    fails 2 30; wait; +3600 is deaf=no; asked; is deaf=no; fails 1 1; is deaf=yes unanswered=3
"""


@table(POLLED)
def test_of_a_polled_queue(script: str) -> None:
    clock = FakeClock()
    polled = PolledQueues(clock)
    polled.wait("not known before its first poll")
    polled.asked("orders", STANDARD)
    for verb, *words in (step.split() for step in script.split(";")):
        if verb.startswith("+"):
            clock.advance(float(verb))
            verb, *words = words
        if verb == "is":
            (queue,) = polled.view()
            given = {"age": queue.last_answered_age, "unanswered": queue.unanswered}
            found = {**given, "deaf": queue.deaf}
            assert isinstance(queue, PolledQueue)
            assert {name: found[name] for name in pairs(words)} == pairs(words)
        elif verb == "fails":
            for _ in range(int(words[0])):
                sent_at = clock()
                clock.advance(float(words[1]))
                polled.unanswered("orders", sent_at)
        elif verb == "asked":
            polled.asked("orders", STANDARD)
        else:
            getattr(polled, verb)(*([] if verb == "rest_all" else ["orders"]))
