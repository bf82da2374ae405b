"""Several open polls of one queue. The test runs the event loop and answers the polls."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Consumer, Queue

from celery_sqs_heartbeat.transport import poll as poll_module
from celery_sqs_heartbeat.transport.poll_room import MOST_POLLS
from tests.integration.test_transport import ChannelHarness
from tests.support.loop import FakePolls, SentPoll
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE

#: How long a poll waits, in seconds, if the queue has no other.
WAIT = 20


class Busy:
    """A consumer with a prefetch limit. `open` are its unanswered polls, oldest first."""

    def __init__(self, desk: ChannelHarness, prefetch: int) -> None:
        self.desk = desk
        self.held: list[Any] = []
        self._ids = itertools.count()
        self.polls = FakePolls(desk.channel)
        desk.channel.basic_qos(0, prefetch, False)
        desk.consume(self.held.append)
        self.polls.loop.tick()
        self.open: list[SentPoll] = list(self.polls.sent)

    def consume(self, *names: str) -> None:
        queues = [Queue(name, channel=self.desk.channel) for name in names]
        Consumer(self.desk.channel, queues, on_message=self.held.append).consume()
        self.tick()

    def tick(self, *, later: bool = False) -> None:
        """Run the event loop; with `later`, its timers, too."""
        before = len(self.polls.sent)
        self.polls.loop.tick_later() if later else self.polls.loop.tick()
        self.open += self.polls.sent[before:]

    def answer(self, poll: SentPoll, count: int) -> None:
        """Answer a poll with that many messages."""
        numbers = itertools.islice(self._ids, count)
        messages = [{"MessageId": f"m{n}", "ReceiptHandle": f"r{n}", "Body": "{}"} for n in numbers]
        self.open.remove(poll)
        poll.answer({"Messages": messages} if messages else {})
        self.tick()

    def fill(self, poll: SentPoll) -> None:
        """Answer a poll with all messages that it requests."""
        self.answer(poll, poll.asked["number_messages"])

    def ack(self, count: int) -> None:
        for _ in range(count):
            self.held.pop().ack()
        self.tick()

    @property
    def requested(self) -> list[int]:
        return [poll.asked["number_messages"] for poll in self.open]

    @property
    def waits(self) -> list[int]:
        return [poll.asked["wait_time_seconds"] for poll in self.open]


@pytest.fixture(autouse=True)
def no_late_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no poll be late: an additional one counts as lost 1.5 s after it was sent."""
    monkeypatch.setattr(poll_module, "_POLL_GRACE", PATIENCE)


@pytest.fixture
def new_busy(proxy: FaultProxy) -> Iterator[Callable[[int], Busy]]:
    # The visibility timeout is long enough for that wait.
    desk = ChannelHarness(proxy, options={"wait_time_seconds": WAIT}, visibility_timeout=120)
    yield lambda prefetch: Busy(desk, prefetch)
    desk.channel.hub = None
    desk.close()


@pytest.mark.parametrize(
    ("prefetch", "requested"),
    [
        (10, []),
        (12, [2]),
        (20, [10]),
        # Four more would not be worth a receive: an additional poll requests at least a quarter
        # of the prefetch count, or ten messages.
        (24, [10]),
        (30, [10, 10]),
        (200, [10] * MOST_POLLS),
        (0, [10] * MOST_POLLS),
    ],
)
def test_after_a_full_answer_a_queue_has_as_many_polls_as_its_prefetch_has_room_for(
    new_busy: Callable[[int], Busy], prefetch: int, requested: list[int]
) -> None:
    busy = new_busy(prefetch)
    assert busy.requested == [10]
    busy.fill(busy.open[0])
    assert busy.requested == requested
    assert busy.waits == [WAIT, 1, 1, 1][: len(requested)]


def test_after_an_answer_that_is_not_full_a_queue_has_one_poll(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(100)
    busy.answer(busy.open[0], 9)
    assert busy.requested == [10]
    assert busy.waits == [WAIT]


def test_the_polls_of_a_queue_that_becomes_empty_end_except_one(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(100)
    busy.fill(busy.open[0])
    longest, *others = busy.open
    for poll in others:
        busy.answer(poll, 0)
    busy.tick(later=True)
    assert busy.open == [longest]
    sent = len(busy.polls.sent)
    busy.answer(longest, 0)
    busy.tick(later=True)
    assert busy.waits == [WAIT]
    assert len(busy.polls.sent) == sent + 1


def test_the_last_open_poll_is_followed_by_a_long_one_if_the_long_one_was_answered_before(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(100)
    busy.fill(busy.open[0])
    for poll in tuple(busy.open):
        busy.answer(poll, 1)
    assert busy.waits == [WAIT]


def test_acks_make_room_for_a_poll_beside_an_open_one_as_soon_as_it_is_worth_a_receive(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(8)
    busy.fill(busy.open[0])
    assert busy.open == []
    busy.ack(1)
    assert busy.requested == [1]
    # A quarter of the prefetch count.
    busy.ack(1)
    assert busy.requested == [1]
    busy.ack(1)
    assert busy.requested == [1, 2]


def full_busy(new_busy: Callable[[int], Busy], *, concurrency: int) -> Busy:
    """Return a worker that holds all twenty messages it may hold, and whose queue has more."""
    busy = new_busy(20)
    busy.desk.heartbeat.concurrency = concurrency
    busy.fill(busy.open[0])
    busy.fill(busy.open[0])
    assert (len(busy.held), busy.open) == (20, [])
    return busy


def test_while_messages_wait_for_the_pool_a_poll_waits_until_it_is_worth_a_receive(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = full_busy(new_busy, concurrency=2)
    for _ in range(4):
        busy.ack(1)
        assert busy.open == []
    busy.ack(1)
    assert busy.requested == [5]


def test_a_poll_that_waits_to_be_worth_a_receive_is_sent_after_a_moment_with_what_there_is(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = full_busy(new_busy, concurrency=2)
    busy.ack(2)
    assert busy.open == []
    busy.tick(later=True)
    assert busy.requested == [2]


@pytest.mark.parametrize("concurrency", [20, 16, 0], ids=["all run", "few wait", "not known"])
def test_a_worker_that_may_soon_have_nothing_to_do_polls_as_soon_as_it_has_a_slot(
    new_busy: Callable[[int], Busy], concurrency: int
) -> None:
    busy = full_busy(new_busy, concurrency=concurrency)
    busy.ack(1)
    assert busy.requested == [1]


def test_a_queue_whose_last_answer_was_not_full_is_polled_as_soon_as_there_is_a_slot(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(20)
    busy.desk.heartbeat.concurrency = 2
    busy.fill(busy.open[0])
    busy.answer(busy.open[0], 9)
    assert busy.requested == [1]


def test_open_polls_never_request_more_than_the_prefetch_has_room_for(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(40)
    for _ in range(50):
        busy.fill(busy.open[0])
        assert len(busy.held) + sum(busy.requested) <= 40
        if not busy.open or len(busy.held) > 30:
            busy.ack(7)


def test_polls_that_fail_together_are_followed_by_one(new_busy: Callable[[int], Busy]) -> None:
    busy = new_busy(100)
    busy.fill(busy.open[0])
    assert len(busy.open) == MOST_POLLS
    for poll in busy.open:
        poll.fail(ValueError("no"))
    busy.open.clear()
    busy.tick()
    busy.ack(3)
    assert busy.open == []
    for _ in range(3):
        busy.tick(later=True)
    assert busy.requested == [10]


@pytest.mark.parametrize(
    ("prefetch", "connections", "additional"),
    [(400, 10, 1), (400, 9, 0), (400, 20, MOST_POLLS - 1), (100, 20, 0)],
    ids=["one connection left", "none", "many", "no slot"],
)
def test_a_queue_with_much_to_do_leaves_slots_and_connections_to_the_others(
    new_busy: Callable[[int], Busy], prefetch: int, connections: int, additional: int
) -> None:
    busy = new_busy(prefetch)
    busy.polls.max_clients = connections
    names = [f"{busy.desk.name}-{number}" for number in range(8)]
    for name in names:
        busy.desk.client.create_queue(QueueName=name)
    busy.consume(*names)
    assert len(busy.open) == 9
    busy.fill(busy.open[0])
    assert len(busy.open) == 9 + additional


def test_a_queue_whose_messages_are_deleted_on_receive_has_one_poll(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(100)
    name = f"{busy.desk.name}-early"
    busy.desk.client.create_queue(QueueName=name)
    queue = Queue(name, channel=busy.desk.channel)
    Consumer(busy.desk.channel, [queue], on_message=busy.held.append, no_ack=True).consume()
    busy.tick()
    assert len(busy.open) == 2


def test_a_queue_kept_in_order_has_several_polls_while_there_is_room_to_wait_for_a_turn(
    proxy: FaultProxy,
) -> None:
    desk = ChannelHarness(proxy, fifo=True, visibility_timeout=120)
    busy = Busy(desk, 20)
    assert busy.requested == [1]
    # Each message is of another group, as SQS delivers them while earlier ones are hidden.
    busy.fill(busy.open[0])
    assert busy.requested == [1] * MOST_POLLS
    for poll in tuple(busy.open):
        busy.fill(poll)
    assert len(busy.held) == 5
    desk.heartbeat.groups._limit = 0
    busy.fill(busy.open[0])
    busy.fill(busy.open[0])
    assert len(busy.requested) == 2
    desk.channel.hub = None
    desk.close()


def test_a_worker_that_is_ending_sends_no_additional_poll(
    new_busy: Callable[[int], Busy],
) -> None:
    busy = new_busy(100)
    busy.desk.heartbeat.is_ending = True
    busy.fill(busy.open[0])
    assert busy.open == []
