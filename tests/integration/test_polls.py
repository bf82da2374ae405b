"""Which polls a channel sends, by the room for messages. The test answers them at the proxy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.observe import watched
from celery_sqs_heartbeat.sqs import long_polls
from celery_sqs_heartbeat.sqs.long_polls import MAX_POLLS
from tests.integration.busy import Busy
from tests.integration.test_transport import ChannelHarness
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE, wait_until

#: How long a poll waits, in seconds, if its queue has no other.
WAIT = 20

NewBusy = Callable[..., Busy]


@pytest.fixture
def new_busy(proxy: FaultProxy) -> Iterator[NewBusy]:
    made: list[Busy] = []

    def make(prefetch: int, *, wait: int = WAIT, others: int = 0, **settings: Any) -> Busy:
        options = {"wait_time_seconds": wait, "polling_interval": 0}
        # The visibility timeout is long enough for that wait.
        desk = ChannelHarness(proxy, options=options, visibility_timeout=120, **settings)
        made.append(Busy(desk, prefetch, others=others))
        return made[-1]

    yield make
    for busy in made:
        busy.close()
        busy.desk.close()


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a poll wait for more room as long as it takes."""
    monkeypatch.setattr(long_polls, "_GATHER_SECONDS", 10 * PATIENCE)


@pytest.mark.parametrize(
    ("prefetch", "requested"),
    [
        (10, []),
        (12, [2]),
        (20, [10]),
        # Four more would not be worth a receive: an additional poll asks for at least a quarter of
        # the prefetch count, or ten messages.
        (24, [10]),
        (30, [10, 10]),
        (200, [10] * MAX_POLLS),
        # worker_prefetch_multiplier=0
        (0, [10] * MAX_POLLS),
    ],
)
def test_after_a_full_answer_a_queue_has_as_many_polls_as_its_prefetch_has_room_for(
    new_busy: NewBusy, prefetch: int, requested: list[int]
) -> None:
    busy = new_busy(prefetch)
    assert (busy.requested, busy.waits) == ([10], [WAIT])
    busy.fill(busy.open[0])
    assert busy.requested == requested
    assert busy.waits == [WAIT, 1, 1, 1][: len(requested)]


@pytest.mark.parametrize("left", [0, 1], ids=["nothing", "a message each"])
@pytest.mark.parametrize("is_long_one_first", [True, False])
def test_a_queue_that_becomes_empty_has_one_long_poll_in_the_end(
    new_busy: NewBusy, left: int, is_long_one_first: bool
) -> None:
    busy = new_busy(100)
    busy.fill(busy.open[0])
    polls = busy.open if is_long_one_first else busy.open[::-1]
    for poll in polls[:-1]:
        busy.answer(poll, left)
    assert busy.open == polls[-1:]
    busy.answer(polls[-1], left)
    assert (busy.requested, busy.waits) == ([10], [WAIT])


def test_messages_are_leased_and_take_room_while_the_consumers_thread_is_busy(
    new_busy: NewBusy,
) -> None:
    busy = new_busy(20)
    for _ in range(2):
        busy.answer_unread(busy.open[0], 10)
    assert (len(busy.desk.keeper), busy.held, busy.open) == (20, [], [])
    busy.settle()
    assert (len(busy.held), busy.open) == (20, [])


def test_the_consumers_thread_has_its_turn_after_at_most_as_many_messages_as_an_answer_has(
    new_busy: NewBusy,
) -> None:
    # Without an event loop it sees signals only then, however many messages the queue has.
    busy = new_busy(40)
    busy.fill(busy.open[0])
    first, second, *_ = busy.open
    busy.answer_unread(first, 7)
    busy.answer_unread(second, 6)
    for held in (20, 23):
        busy.desk.connection.drain_events(timeout=PATIENCE)
        assert len(busy.held) == held


def test_acks_make_room_for_a_poll_beside_an_open_one_as_soon_as_it_is_worth_a_receive(
    new_busy: NewBusy,
) -> None:
    busy = new_busy(8)
    busy.fill(busy.open[0])
    # The second one would be less than a quarter of the prefetch count.
    for requested in ([1], [1], [1, 2]):
        busy.ack()
        busy.settle()
        assert busy.requested == requested


def full_busy(new_busy: NewBusy, *, concurrency: int, last: int = 10) -> Busy:
    """Return a worker that holds all messages it may hold, or almost, after a `last` answer."""
    busy = new_busy(20, concurrency=concurrency)
    busy.fill(busy.open[0])
    busy.answer(busy.open[0], last)
    return busy


@pytest.mark.usefixtures("gathering")
def test_while_messages_wait_for_the_pool_a_poll_waits_until_it_is_worth_a_receive(
    new_busy: NewBusy,
) -> None:
    busy = full_busy(new_busy, concurrency=2)
    busy.ack(4)
    assert busy.open == []
    busy.ack()
    busy.settle()
    assert busy.requested == [5]


def test_a_poll_that_waits_to_be_worth_a_receive_is_sent_after_a_moment_with_what_there_is(
    new_busy: NewBusy,
) -> None:
    busy = full_busy(new_busy, concurrency=2)
    busy.ack()
    busy.settle()
    assert busy.requested == [1]


@pytest.mark.usefixtures("gathering")
@pytest.mark.parametrize("concurrency", [20, 16, 0], ids=["all run", "few wait", "not known"])
def test_a_worker_that_may_soon_have_nothing_to_do_polls_as_soon_as_it_has_a_slot(
    new_busy: NewBusy, concurrency: int
) -> None:
    busy = full_busy(new_busy, concurrency=concurrency)
    busy.ack()
    busy.settle()
    assert busy.requested == [1]


@pytest.mark.usefixtures("gathering")
def test_a_queue_whose_last_answer_was_not_full_is_polled_as_soon_as_there_is_a_slot(
    new_busy: NewBusy,
) -> None:
    assert full_busy(new_busy, concurrency=2, last=9).requested == [1]


def test_a_queue_alone_never_gets_more_than_the_prefetch_count(new_busy: NewBusy) -> None:
    busy = new_busy(40)
    for _ in range(50):
        busy.fill(busy.open[0])
        assert len(busy.held) + sum(busy.requested) <= 40
        if not busy.open or len(busy.held) > 30:
            busy.ack(7)
            busy.settle()


@pytest.mark.parametrize("seed", range(3))
def test_beyond_the_prefetch_count_one_message_of_each_additional_queue_waits_with_its_lease(
    new_busy: NewBusy, seed: int
) -> None:
    busy, chance = new_busy(6, others=2), random.Random(seed)
    for _ in range(60):
        if busy.open and chance.random() < 0.7:
            poll = chance.choice(sorted(busy.open, key=lambda poll: (poll.queue, poll.count)))
            busy.answer(poll, chance.choice([0, 1, poll.count]))
        elif busy.held:
            busy.ack()
            busy.settle()
        assert len(busy.held) <= 6
        assert len(busy.held) + busy.waiting + sum(busy.requested) <= 6 + 2


def test_each_of_a_hundred_queues_has_a_poll_and_leaves_the_room_to_a_busy_one(
    new_busy: NewBusy, caplog: pytest.LogCaptureFixture
) -> None:
    busy = new_busy(8, others=99)
    assert busy.requested == [1] * 100
    first, *others = busy.open
    busy.answer(first, 1)
    assert busy.requested == [1] * 99 + [2] * 3
    while len(busy.open) > 99:
        busy.fill(max(busy.open, key=lambda poll: (poll.queue == first.queue, poll.count)))
    assert busy.open == others
    for poll in others:
        busy.fill(poll)
    assert (len(busy.held), busy.waiting, len(busy.desk.keeper)) == (8, 99, 8 + 99)
    for _ in range(99):
        assert busy.open == []
        busy.ack()
        busy.settle()
    assert (len(busy.held), busy.waiting, busy.open) == (8, 0, [])
    busy.ack()
    busy.settle()
    assert set(busy.requested) == {1}
    # Each has a connection that is used again.
    assert "Connection pool is full" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "first", "requested"),
    [
        # All but one message of a poll may have to wait for another of their group.
        ({}, 1, [1] * MAX_POLLS),
        ({"fifo_batch": 4, "fifo_waiting": 5}, 4, [1, 1, 3, 4]),
        ({"fifo_batch": 4, "fifo_waiting": 0}, 1, [1]),
    ],
)
def test_the_polls_of_a_queue_kept_in_order_ask_for_no_more_than_has_room_to_wait_for_a_turn(
    new_busy: NewBusy, settings: dict[str, int], first: int, requested: list[int]
) -> None:
    busy = new_busy(20, fifo=True, **settings)
    assert busy.requested == [first]
    # Each message is of another group, as SQS delivers them while earlier ones are hidden.
    busy.fill(busy.open[0])
    assert busy.requested == requested


@pytest.mark.parametrize(
    ("name", "stops", "goes_on"),
    [("is_late", True, False), ("ending", 1_000, 999)],
    ids=["the keeper is behind", "a thousand deletes are not confirmed"],
)
def test_polls_stop_meanwhile_and_go_on_within_a_second(
    new_busy: NewBusy, monkeypatch: pytest.MonkeyPatch, name: str, stops: object, goes_on: object
) -> None:
    busy = new_busy(100)
    monkeypatch.setattr(ThreadKeeper, name, stops)
    busy.answer(busy.open[0], 0)
    busy.look()
    assert busy.open == []
    monkeypatch.setattr(ThreadKeeper, name, goes_on)
    busy.look()
    assert busy.requested == [10]


def refuse_all(busy: Busy) -> None:
    for poll in busy.open:
        poll.refuse()
    busy.settle()


def test_polls_that_fail_together_are_followed_by_one(
    new_busy: NewBusy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polls, "FIRST_PAUSE", 0.001)
    busy = new_busy(100)
    busy.fill(busy.open[0])
    assert len(busy.open) == MAX_POLLS
    refuse_all(busy)
    assert (busy.requested, busy.waits) == ([10], [WAIT])


def test_a_queue_whose_polls_fail_is_deaf_until_it_has_to_wait_for_room(
    new_busy: NewBusy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polls, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(watched, "DEAF_SECONDS", 0.0)
    busy = new_busy(100)
    for failed, is_deaf in ((1, False), (2, True)):
        refuse_all(busy)
        (seen,) = busy.desk.joined.reception.polled.view()
        assert (seen.queue, seen.unanswered, seen.deaf) == (busy.desk.name, failed, is_deaf)
    monkeypatch.setattr(ThreadKeeper, "ending", 1_000)
    busy.look()
    assert not busy.desk.joined.reception.polled.view()[0].deaf


def test_a_poll_that_is_never_answered_does_not_stop_its_queue(
    new_busy: NewBusy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An answer may even outlast boto3's timeout, which starts again with each byte.
    monkeypatch.setattr(long_polls, "ANSWER_SECONDS", 0.0)
    busy = new_busy(100, wait=1)

    def is_polled_again() -> bool:
        busy.desk.look()
        # Not only repeated by boto3.
        return len(busy.desk.polls) > 1 < len(busy.polls.open)

    wait_until(is_polled_again)
    busy.polls.open[1].answer(10)
    busy.desk.drain_until(lambda: len(busy.held) == 10)
