"""Several open polls of one queue without an event loop. The test answers the polls.

Threads take the place of a pool's greenlets.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from celery_sqs_heartbeat.transport import poll as poll_module
from celery_sqs_heartbeat.transport.delivery import Leaser
from celery_sqs_heartbeat.transport.poll_room import MOST_POLLS
from tests.integration.test_transport import ChannelHarness
from tests.support.blocked_polls import BlockedPoll, BlockedPolls
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE, wait_until

#: How long a poll waits, in seconds, if the queue has no other.
WAIT = 20


class Busy:
    """A consumer on its own thread. `held` are the messages that it has got."""

    def __init__(
        self, desk: ChannelHarness, prefetch: int, patch: pytest.MonkeyPatch, *, is_green: bool
    ) -> None:
        self.desk = desk
        self.held: list[Any] = []
        self.may_deliver = threading.Event()
        self.may_deliver.set()
        self._ids = itertools.count()
        self._is_over = False
        self.polls = BlockedPolls(desk.channel.sqs(), patch)
        desk.heartbeat.has_greenlets = is_green
        desk.channel.basic_qos(0, prefetch, False)
        desk.consume(self._take)
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def fill(self, poll: BlockedPoll) -> None:
        """Answer a poll with all messages that it requests."""
        self.answer(poll, poll.requests)

    def answer(self, poll: BlockedPoll, count: int) -> None:
        poll.answer(*(f"m{number}" for number in itertools.islice(self._ids, count)))

    def begin(self) -> list[BlockedPoll]:
        """Fill the first poll, and return those that follow."""
        (first,) = self.polls.next()
        self.fill(first)
        return self.polls.next(MOST_POLLS)

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.held) == count)

    def close(self, open_polls: list[BlockedPoll]) -> None:
        """End the worker, whose open polls are these."""
        self.end()
        self.desk.heartbeat.is_ending = True
        self.may_deliver.set()
        for poll in open_polls:
            poll.answer()
        self.join()

    def end(self) -> None:
        """Let the consumer's thread drain no more events."""
        self._is_over = True

    def join(self) -> None:
        """Wait for all threads. Their further polls return nothing."""
        while self._thread.is_alive():
            while self.polls.has_more:
                self.polls.next()[0].answer()
            self._thread.join(0.05)
        self.desk.heartbeat.poll_threads.wait(self.desk.heartbeat.open_polls)

    def _take(self, message: Any) -> None:
        self.held.append(message)
        assert self.may_deliver.wait(PATIENCE)

    def _drain(self) -> None:
        while not self._is_over:
            with contextlib.suppress(socket.timeout):
                self.desk.connection.drain_events(timeout=0.1)


NewBusy = Callable[..., Busy]


@pytest.fixture
def new_busy(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewBusy]:
    # No poll is late: an additional one would count as lost 1.5 s after it was sent.
    monkeypatch.setattr(poll_module, "_POLL_GRACE", PATIENCE)
    # The visibility timeout is long enough for that wait.
    desk = ChannelHarness(proxy, options={"wait_time_seconds": WAIT}, visibility_timeout=120)
    yield lambda prefetch=100, *, is_green=True: Busy(
        desk, prefetch, monkeypatch, is_green=is_green
    )
    desk.close()


@pytest.mark.parametrize(
    ("prefetch", "requested"),
    [(12, [2]), (20, [10]), (30, [10, 10]), (200, [10] * MOST_POLLS), (0, [10] * MOST_POLLS)],
)
def test_after_a_full_answer_a_queue_has_as_many_polls_as_its_prefetch_has_room_for(
    new_busy: NewBusy, prefetch: int, requested: list[int]
) -> None:
    busy = new_busy(prefetch)
    (first,) = busy.polls.next()
    assert (first.requests, first.waits) == (10, WAIT)
    busy.fill(first)
    polls = busy.polls.next(len(requested))
    assert [poll.requests for poll in polls] == requested
    assert not busy.polls.has_more
    assert {poll.waits for poll in polls if poll.is_additional} <= {1}
    busy.close(polls)


def test_after_an_answer_that_is_not_full_a_queue_has_one_poll(new_busy: NewBusy) -> None:
    busy = new_busy()
    (first,) = busy.polls.next()
    busy.answer(first, 9)
    (only,) = busy.polls.next()
    busy.wait_for(9)
    assert only.waits == WAIT
    assert not busy.polls.has_more
    busy.close([only])


def test_a_queue_that_becomes_empty_has_one_long_poll(new_busy: NewBusy) -> None:
    busy = new_busy()
    for poll in busy.begin():
        poll.answer()
    polls = busy.polls.next()
    while polls[0].waits != WAIT:
        polls[0].answer()
        polls = busy.polls.next()
    assert not busy.polls.has_more
    busy.close(polls)


def test_a_pool_without_greenlets_has_one_poll(new_busy: NewBusy) -> None:
    busy = new_busy(is_green=False)
    (first,) = busy.polls.next()
    busy.fill(first)
    (only,) = busy.polls.next()
    busy.wait_for(10)
    assert only.waits == WAIT
    assert not busy.polls.has_more
    busy.close([only])


def test_the_messages_of_each_poll_are_delivered_while_the_others_are_open(
    new_busy: NewBusy,
) -> None:
    busy = new_busy()
    polls = busy.begin()
    for count, poll in enumerate(polls[1:], 1):
        busy.answer(poll, 1)
        busy.wait_for(10 + count)
    busy.close(polls[:1])


def test_messages_are_leased_while_others_wait_for_a_free_greenlet_of_the_pool(
    new_busy: NewBusy,
) -> None:
    busy = new_busy()
    polls = busy.begin()
    busy.may_deliver.clear()
    for poll in polls:
        busy.answer(poll, 5)
    wait_until(lambda: len(busy.desk.keeper) == 30)
    # The first of each answer.
    busy.wait_for(10 + MOST_POLLS)
    busy.close([])


def test_messages_that_wait_for_the_pool_count_as_prefetched(new_busy: NewBusy) -> None:
    busy = new_busy(20)
    busy.may_deliver.clear()
    (first,) = busy.polls.next()
    busy.fill(first)
    busy.wait_for(1)
    busy.desk.channel.poll_more()
    assert not busy.polls.has_more
    busy.may_deliver.set()
    (second,) = busy.polls.next()
    assert second.requests == 10
    busy.fill(second)
    busy.wait_for(20)
    assert not busy.polls.has_more
    busy.close([])


def test_messages_that_are_being_leased_count_as_prefetched(
    new_busy: NewBusy, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_leasing, may_lease = threading.Event(), threading.Event()
    lease_all = Leaser.lease_all

    def lease_slowly(*args: Any) -> Any:
        is_leasing.set()
        assert may_lease.wait(PATIENCE)
        return lease_all(*args)

    busy = new_busy(20)
    (first,) = busy.polls.next()
    busy.fill(first)
    (second,) = busy.polls.next()
    busy.wait_for(10)
    monkeypatch.setattr(Leaser, "lease_all", lease_slowly)
    busy.fill(second)
    assert is_leasing.wait(PATIENCE)
    busy.desk.channel.poll_more()
    # The other threads would send a poll at once.
    assert not busy.polls.has_more_within(0.3)
    may_lease.set()
    busy.wait_for(20)
    assert not busy.polls.has_more
    busy.close([])


def test_acks_make_room_for_a_poll_while_messages_wait_for_the_pool(
    new_busy: NewBusy, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = new_busy(20)
    heartbeat, noted = busy.desk.heartbeat, list[object]()
    start = heartbeat.poll_threads.start

    def start_first(job: Callable[[], object]) -> None:
        # If the consumer's own thread polled before, it would wait for the pool itself.
        before = len(noted)
        start(job)
        wait_until(lambda: len(noted) > before)

    monkeypatch.setattr(heartbeat, "note_poll", lambda *poll: noted.append(poll))
    monkeypatch.setattr(heartbeat.poll_threads, "start", start_first)
    (first,) = busy.polls.next()
    busy.fill(first)
    (second,) = busy.polls.next()
    busy.wait_for(10)
    busy.may_deliver.clear()
    busy.fill(second)
    busy.wait_for(11)
    assert not busy.polls.has_more
    busy.held.pop(0).ack()
    polls = busy.polls.next()
    assert polls[0].requests == 1
    busy.close(polls)


def test_an_additional_poll_that_fails_leaves_the_queue_to_the_consumer(
    new_busy: NewBusy, caplog: pytest.LogCaptureFixture
) -> None:
    busy = new_busy()
    for poll in busy.begin():
        if poll.is_additional:
            poll.fail(EndpointConnectionError(endpoint_url="http://sqs"))
        else:
            poll.answer()
    polls = busy.polls.next()
    assert not polls[0].is_additional
    # The next poll may be sent before the error is logged.
    wait_until(lambda: "fails and is retried: EndpointConnectionError" in caplog.text)
    busy.close(polls)


def test_the_messages_of_an_additional_poll_are_released_if_its_channel_was_closed(
    new_busy: NewBusy,
) -> None:
    busy = new_busy()
    polls = busy.begin()
    for message in busy.held:
        message.ack()
    wait_until(lambda: not len(busy.desk.keeper))
    busy.end()
    busy.desk.channel.close()
    for poll in polls:
        busy.answer(poll, 2)
    busy.join()
    wait_until(lambda: not len(busy.desk.keeper))
    assert len(busy.held) == 10


def test_a_delivery_ends_when_its_channel_is_closed(new_busy: NewBusy) -> None:
    busy = new_busy()
    polls = busy.begin()
    busy.may_deliver.clear()
    busy.fill(polls[-1])
    busy.wait_for(11)
    busy.end()
    busy.desk.channel.close()
    busy.may_deliver.set()
    for poll in polls[:-1]:
        poll.answer()
    busy.join()
    wait_until(lambda: not len(busy.desk.keeper))
    assert len(busy.held) == 11


def test_the_messages_of_an_additional_poll_are_released_if_the_worker_is_ending(
    new_busy: NewBusy,
) -> None:
    busy = new_busy()
    long, *others = busy.begin()
    busy.desk.heartbeat.is_ending = True
    for poll in others:
        busy.answer(poll, 2)
    busy.desk.heartbeat.poll_threads.wait(busy.desk.heartbeat.open_polls)
    assert len(busy.held) == 10
    wait_until(lambda: len(busy.desk.keeper) == 10)
    busy.close([long])
