"""Lets a channel's consumer have what its `Receiver` hands over, where the consumer runs."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable

from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived
from celery_sqs_heartbeat.receiving.receiver import Receiver
from celery_sqs_heartbeat.sqs.consumed_queue import ConsumedQueue
from celery_sqs_heartbeat.sqs.long_polls import Poll
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel


class Feed:
    """The messages of one channel that wait for its consumer's thread, and its credit.

    Args:
        deliverer: Delivers messages to their consumers.
        wake: Lets the consumer's thread call `deliver`. Can be called from any thread.
    """

    def __init__(
        self,
        *,
        kombu: KombuChannel,
        heartbeat: Heartbeat,
        deliverer: Deliverer,
        wake: Callable[[], object],
    ) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._deliverer = deliverer
        self._wake = wake
        self._urls: dict[str, str] = {}
        self._waiting: deque[Arrived] = deque()
        self._taken = 0
        self.receiver = Receiver(
            keeper=heartbeat.keeper,
            clients=heartbeat.poll_clients,
            waitlist=heartbeat.groups,
            polled=heartbeat.polled,
            lock=heartbeat.polling,
            hand_over=self._take,
            all_polls=lambda: heartbeat.polls,
            note_poll=heartbeat.note_poll,
            concurrency=heartbeat.concurrency,
        )

    @property
    def is_over(self) -> bool:
        """Whether its channel was closed, and every poll was answered."""
        return self._kombu.is_closed and not self.polls

    @property
    def is_consuming(self) -> bool:
        """Whether its channel consumes with leases."""
        return any(map(self._kombu.is_leased, self._kombu.queues()))

    @property
    def polls(self) -> tuple[Poll, ...]:
        """The open polls."""
        return self.receiver.polls

    def consume(self) -> None:
        """Receive from the channel's queues from now on. Call this where the consumer runs."""
        self._heartbeat.polled.note_turn()
        new = [
            queue
            for queue in self._kombu.queues()
            if queue not in self._urls and self._kombu.is_leased(queue)
        ]
        if new and not self._heartbeat.is_ending:
            for queue in new:
                # If a queue must be created, kombu does so here.
                url = self._urls[queue] = self._kombu.url(queue)
                self._heartbeat.poll_clients.use(self._kombu.broker(), url, 0.0)
            self.fill()
            self.receiver.consume(*(self._consumed(queue, self._urls[queue]) for queue in new))

    def cancel(self, queue: str) -> None:
        """Receive no more messages of a queue, and release those that wait."""
        self._urls.pop(queue, None)
        self.receiver.cancel(queue)
        self._release_orphans()

    def fill(self) -> None:
        """Receive what there is room for now. Can be called from any thread."""
        if not self._heartbeat.is_ending:
            with self._heartbeat.polling:
                self._allow()
            self.receiver.fill()

    def look(self) -> None:
        """Notice what has changed about the queues, and receive what there is room for.

        Can be called from any thread.
        """
        # The consumer's thread may cancel one meanwhile.
        for queue, url in tuple(self._urls.items()):
            self.receiver.follow(self._consumed(queue, url))
        self.fill()

    def stop(self) -> None:
        """Receive no more. Messages that open polls still return are released."""
        self.receiver.stop()
        self._release_orphans()

    def deliver(self) -> bool:
        """Deliver messages. Return whether there were any.

        Not more than an answer has, because the consumer's thread has other work: it sees signals
        and acks.
        """
        self._heartbeat.polled.note_turn()
        messages: list[Arrived] = []
        while self._waiting and len(messages) < MAX_RECEIVED:
            try:
                messages.append(self._waiting.popleft())
            except IndexError:
                # A shutdown has released it.
                break
        if not messages:
            return False
        try:
            self._deliverer.deliver(messages)
        finally:
            if self._waiting:
                self._wake()
        # Those that were not delivered have left room.
        self.fill()
        return True

    def _take(self, messages: list[Arrived]) -> None:
        self._heartbeat.arriving.update(each.handle for each in messages)
        # Several threads may hand messages over at once.
        with self._heartbeat.polling:
            self._taken += len(messages)
        self._waiting += messages
        self._wake()
        # The consumer may have ended meanwhile.
        self._release_orphans()

    def _release_orphans(self) -> None:
        """Release the messages that wait for a consumer that has ended."""
        ended = [each for each in tuple(self._waiting) if not self._has_consumer(each.queue.name)]
        for each in reversed(ended):
            try:
                self._waiting.remove(each)
            except ValueError:
                # Another thread has taken it.
                continue
            self._deliverer.release([each])

    def _has_consumer(self, queue: str) -> bool:
        is_over = self._heartbeat.is_ending or self._kombu.is_closed
        return not is_over and self._kombu.consumer(queue) is not None

    def _allow(self) -> None:
        """Say how many messages the channel may get in all: those that it got, and its room.

        They are counted in this order so that one that is delivered meanwhile counts twice, not
        never. The next turn corrects that.
        """
        heartbeat = self._heartbeat
        taken = self._taken
        arriving = sum(not self._kombu.takes_slot(tag) for tag in tuple(heartbeat.arriving))
        free = self._kombu.free_slots()
        if free is None:
            # It is infinite before the first queue is known.
            most = int(min(heartbeat.terms.most_leases(), sys.maxsize))
            free = most - len(heartbeat.keeper)
        self.receiver.allow(taken + free - arriving, self._kombu.prefetch_count)

    def _consumed(self, queue: str, url: str) -> ConsumedQueue:
        """Describe a queue as the settings and its attributes are now."""
        heartbeat, kombu = self._heartbeat, self._kombu
        system, of_sender = kombu.wanted_attributes()
        return heartbeat.leased.consumed(
            queue,
            url,
            wait=kombu.wait_seconds,
            pause=float(kombu.polling_interval or 0),
            system_attributes=system,
            sender_attributes=of_sender,
        )
