"""One channel's share in what the keeper receives, and the signal that messages have arrived."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.leases.received_as import RecentEnds
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.watching import wait_readable
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.settling import SettlingChannel

#: Bytes read at once: each is one call of `set`.
_CHUNK = 4_096


class Arrivals:
    """Wakes an event loop, or a thread that waits without one.

    It wakes when the keeper hands messages over, and by calls of `set`, from any thread.
    `Hub.call_soon` would not do: before kombu 5.7 it does not wake a loop that waits.
    """

    def __init__(self, keeper: LinkedKeeper) -> None:
        self._keeper = keeper
        self._hub: Any = None
        self._is_awake = False
        self._sockets = socket.socketpair()
        for each in self._sockets:
            each.setblocking(False)

    def set(self) -> None:
        """Wake the thread that waits, now or when it waits next."""
        if not self._is_awake:
            # A full socket wakes it, too. A closed one has no thread to wake.
            with contextlib.suppress(OSError):
                self._sockets[1].send(b"\0")

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Do not wake this thread in the block, because it looks for messages after it."""
        self._is_awake = True
        try:
            yield
        finally:
            self._is_awake = False

    def wait(self, seconds: float) -> None:
        """Wait for messages or a call of `set`, at most for so long."""
        descriptors = (self._sockets[0].fileno(), self._keeper.fileno())
        # That of a closed socket is -1.
        wait_readable([each for each in descriptors if each >= 0], seconds)
        self._read()

    def listen(self, hub: Any, call: Callable[[], object]) -> None:
        """Have an event loop call a function, unless it does so already."""
        self._hub = hub
        if self._sockets[0].fileno() not in hub.readers:
            hub.add_reader(self._sockets[0], self._read_and, call)
            hub.add_reader(self._keeper.fileno(), call)
            self.set()

    def close(self) -> None:
        """Wake no thread any more."""
        if self._hub is not None and self._sockets[0].fileno() in self._hub.readers:
            self._hub.remove_reader(self._sockets[0])
        for each in self._sockets:
            each.close()

    def _read_and(self, call: Callable[[], object]) -> None:
        self._read()
        call()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            self._sockets[0].recv(_CHUNK)


class Feed:
    """Has the keeper receive for a channel, and delivers what it hands over.

    Args:
        deliverer: Delivers messages to their consumers.
        wake: Lets the consumer's thread call `deliver`. Can be called from any thread.
    """

    def __init__(
        self, channel: SettlingChannel, deliverer: Deliverer, wake: Callable[[], object]
    ) -> None:
        self._channel = channel
        self._heartbeat = heartbeat = channel.heartbeat
        self._keeper = heartbeat.keeper
        self._deliverer = deliverer
        self._wake = wake
        self._number = heartbeat.new_channel()
        self._urls: dict[str, str] = {}
        self._waiting: deque[Arrived] = deque()
        #: The receipt handles of those that are being delivered.
        self._delivering: set[str] = set()
        self._ends = RecentEnds()
        heartbeat.feeds[self._number] = self

    @property
    def is_consuming(self) -> bool:
        """Whether its channel consumes with leases."""
        return bool(self._channel.leased_queues())

    def consume(self) -> None:
        """Receive from the channel's queues from now on. Call this where the consumer runs."""
        self._heartbeat.note_turn()
        leased = self._heartbeat.leased
        new = [queue for queue in self._channel.leased_queues() if queue not in self._urls]
        if new and not self._heartbeat.is_ending:
            # If a queue must be created, kombu does so here.
            self._urls.update({queue: self._channel.queue_url(queue) for queue in new})
            consumed = [leased.consumed(queue, self._urls[queue], self._channel) for queue in new]
            self._keeper.consume(self._number, consumed)
            self.fill()

    def cancel(self, queue: str) -> None:
        """Receive no more messages of a queue, and release those that wait."""
        if self._urls.pop(queue, None) is not None:
            self._keeper.cancel(self._number, queue)
        self._release_orphans()

    def fill(self) -> None:
        """Receive what there is room for now. Can be called from any thread."""
        if self._urls and not self._heartbeat.is_ending:
            self._keeper.allow(self._number, self._room)
            if self._waiting and self._deliverable > 0:
                self._wake()

    def note_end(self, receipt_handle: str) -> None:
        """Note that a message's slot is free, and receive what there is room for now."""
        self._ends.note(clock.now())
        self._heartbeat.note_free(receipt_handle)

    def look(self) -> None:
        """Notice what has changed about the queues, and receive what there is room for.

        Can be called from any thread.
        """
        if not self._heartbeat.is_ending:
            # The consumer's thread may cancel one meanwhile.
            for queue, url in tuple(self._urls.items()):
                consumed = self._heartbeat.leased.consumed(queue, url, self._channel)
                self._keeper.follow(self._number, consumed)
            self.fill()

    def stop(self) -> None:
        """Receive no more, and release the messages that wait."""
        self._urls.clear()
        self._heartbeat.feeds.pop(self._number, None)
        self._keeper.close(self._number)
        self._release_orphans()

    def take(self, messages: list[Arrived]) -> None:
        """Take messages that were handed over. Can be called from any thread."""
        self._heartbeat.arriving.update(each.handle for each in messages)
        self._waiting += messages
        self._wake()
        if not all(self._has_consumer(each.queue) for each in messages):
            # It has ended meanwhile.
            self._release_orphans()

    def deliver(self) -> bool:
        """Deliver messages. Return whether there were any that could be."""
        self._heartbeat.note_turn()
        most = self._deliverable
        messages: list[Arrived] = []
        while self._waiting and len(messages) < most:
            try:
                # First: meanwhile it counts twice, not never.
                self._delivering.add(self._waiting[0].handle)
                messages.append(self._waiting.popleft())
            except IndexError:
                # A shutdown has released it.
                break
            # The first may be another one by then.
            self._delivering.add(messages[-1].handle)
        try:
            if messages:
                self._deliverer.deliver(messages)
        finally:
            self._delivering.clear()
            if messages:
                # Those that were not delivered have left room.
                self.fill()
        return bool(messages)

    @property
    def _deliverable(self) -> int:
        """How many messages may be delivered in a turn, by the free slots and greenlets.

        Not more than an answer has, because the consumer's thread has other work: it sees signals
        and acks.
        """
        slots = self._channel.qos.can_consume_max_estimate()
        most = SQS.most_received if slots is None else min(SQS.most_received, slots)
        return int(min(most, self._free_in_pool)) if self._heartbeat.is_green else most

    @property
    def _free_in_pool(self) -> float:
        return self._heartbeat.pool_size(self._urls) - len(self._heartbeat.in_pool)

    def _release_orphans(self) -> None:
        """Release the messages that wait for a consumer that has ended."""
        ended = [each for each in tuple(self._waiting) if not self._has_consumer(each.queue)]
        for each in reversed(ended):
            try:
                self._waiting.remove(each)
            except ValueError:
                # Another thread has taken it.
                continue
            self._deliverer.release([each])

    def _has_consumer(self, queue: str) -> bool:
        is_over = self._heartbeat.is_ending or self._channel.closed
        return not is_over and self._channel.consumer(queue) is not None

    def _room(self) -> tuple[int, int]:
        """Return how many more messages the channel may get, and how many it may hold at once.

        It follows the pace. Once messages have ended, at most as many wait for the pool as end in
        half a second, by the mean of the last two seconds, less one. If tasks take minutes, none
        waits: the others are left to other workers. Each one that is received and released has used
        up a receive.
        """
        heartbeat = self._heartbeat
        # First: one that is delivered meanwhile counts twice, not never. The next turn corrects it.
        arriving = len(self._waiting) + sum(
            tag in heartbeat.arriving and not self._channel.takes_slot(tag)
            for tag in tuple(self._delivering)
        )
        slots = self._channel.qos.can_consume_max_estimate()
        if slots is None:
            # It is infinite before the first queue is known.
            slots = int(min(heartbeat.leased.most_leases(), sys.maxsize)) - len(self._keeper)
        cut = 0
        if self._ends.is_known:
            soon = max(0, self._ends.count(clock.now()) - 1)
            cut = max(0, slots - int(min(slots, self._free_in_pool + soon)))
        count = int(self._channel.qos.prefetch_count or 0)
        return slots - cut - arriving, count and max(1, count - cut)
