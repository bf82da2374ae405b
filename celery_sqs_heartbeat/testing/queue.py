"""A queue that follows AWS: visibility, receipt handles, groups, dead letters, limits.

The sources of each behaviour:

- G: SQS Developer Guide ("Visibility timeout", "Dead-letter queues", "FIFO delivery logic",
  "Amazon SQS message quotas", "At-least-once delivery").
- A: SQS API reference, of the action.
- L: LocalStack's test suite, whose answers were recorded from AWS (`aws_validated`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from celery_sqs_heartbeat.leases.service import SQS
from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.deduplication import Deduplication, id_by_content
from celery_sqs_heartbeat.testing.delivery import available_of_fifo, available_of_standard
from celery_sqs_heartbeat.testing.handles import Handles
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.options import QueueOptions
from celery_sqs_heartbeat.testing.sequence import SequenceNumbers

__all__ = ["QueueOptions", "SimulatedQueue"]


class SimulatedQueue:
    """One queue. Time is always an argument.

    Args:
        url: Ends in `.fifo` for a FIFO queue (A, CreateQueue).
        generator: Draws handles, order and chance.
        on_delete: Called with each deleted message.
    """

    def __init__(
        self,
        url: str,
        options: QueueOptions,
        generator: random.Random,
        on_delete: Callable[[SimulatedMessage], None] = lambda message: None,
    ) -> None:
        self.url = url
        self.name = url.rsplit("/", 1)[-1]
        self.is_fifo = url.endswith(".fifo")
        self.options = options
        self.created_at = self.modified_at = 0.0
        self.purged_at = -math.inf
        self.messages: dict[str, SimulatedMessage] = {}
        self._random = generator
        self._on_delete = on_delete
        self._handles = Handles(generator, is_fifo=self.is_fifo)
        self._deduplication = Deduplication()
        self._sequence = SequenceNumbers()
        # No message is older, so `expire` does not have to look at each of them.
        self._oldest = math.inf

    def send(
        self, message: SimulatedMessage, now: float, deduplication_id: str | None = None
    ) -> SimulatedMessage:
        """Add a message, or return the one that it repeats on a FIFO queue.

        Raises:
            SqsError: A FIFO queue needs a deduplication id to detect repetitions (L).
        """
        if self.is_fifo:
            if deduplication_id is None and self.options.content_based_deduplication:
                deduplication_id = id_by_content(message)
            if deduplication_id is None:
                raise errors.no_deduplication()
            by_group = self.options.deduplicates_by_group
            first = self._deduplication.first(message, deduplication_id, now, by_group=by_group)
            if first is not message:
                return first
        message.deduplication_id = deduplication_id
        self.add(message, now)
        return message

    def add(self, message: SimulatedMessage, now: float) -> None:
        """Add a message behind the others, for the rest of its retention."""
        if self.is_fifo:
            message.sequence_number = self._sequence.next(now)
        self.messages[message.message_id] = message
        self._oldest = min(self._oldest, message.retained_from)

    def expire(self, now: float) -> None:
        """Delete the messages whose retention has ended, even those in flight (G)."""
        if now < self._oldest + self.options.retention:
            return
        kept = math.inf
        for message in list(self.messages.values()):
            if now >= message.retained_from + self.options.retention:
                message.is_deleted = True
                del self.messages[message.message_id]
            else:
                kept = min(kept, message.retained_from)
        self._oldest = kept

    def receive(
        self, now: float, *, count: int, timeout: int | None = None, is_long_poll: bool = False
    ) -> list[SimulatedMessage]:
        """Return up to `count` visible messages, hidden from now on.

        Raises:
            SqsError: OverLimit, on a short poll of a standard queue. A long poll returns nothing
                then (A), and neither does any poll of a FIFO queue (G).
        """
        self.expire(now)
        hidden_for = self.options.visibility_timeout if timeout is None else timeout
        room = self.options.in_flight_limit - self.in_flight(now)
        if room <= 0:
            if is_long_poll or self.is_fifo:
                return []
            raise errors.over_limit()
        received: list[SimulatedMessage] = []
        for message in list(self._available(now)):
            if len(received) == min(count, room):
                break
            if not self._bury(message, now):
                received.append(message)
        for message in received:
            message.receive(self._handles.new(message), now, hidden_for)
        return received

    def change_visibility(self, handle: str, timeout: int, now: float) -> None:
        """Hide a message for `timeout` seconds from now; 0 makes it visible.

        Raises:
            SqsError: See the checks below.
        """
        self.expire(now)
        message = self._handles.find(handle)
        if not 0 <= timeout <= SQS.longest_timeout:
            raise errors.out_of_range("VisibilityTimeout", timeout, "Must be between 0 and 43200")
        if message.is_deleted:
            raise errors.not_available(handle)
        self._handles.check_use(handle, message, now)
        if now >= message.visible_at and not self.options.late_extension:
            # On a standard queue: answered with success, and nothing changes (L).
            return
        # On a standard queue a stale handle still changes the message, and so breaks the lease of
        # anyone who has received it since (L).
        if now + timeout > message.received_at + SQS.longest_hold:
            raise errors.beyond_limit(timeout)
        message.visible_at = now + timeout

    def delete(self, handle: str, now: float) -> None:
        """Delete a message.

        On a standard queue a stale handle "succeeds" and deletes nothing, and an expired
        one still deletes (A, DeleteMessage). A FIFO queue refuses both (L).

        Raises:
            SqsError: No such handle was ever made, or a FIFO queue refuses it.
        """
        self.expire(now)
        message = self._handles.find(handle)
        if message.is_deleted:
            return
        self._handles.check_use(handle, message, now)
        if handle == message.handle:
            message.is_deleted = True
            del self.messages[message.message_id]
            self._on_delete(message)

    def purge(self) -> None:
        """Delete all messages, even those in flight (A, PurgeQueue)."""
        for message in self.messages.values():
            message.is_deleted = True
        self.messages.clear()

    def in_flight(self, now: float) -> int:
        """Return how many messages were received and are still hidden."""
        self.expire(now)
        return sum(message.is_in_flight(now) for message in self.messages.values())

    def visible(self, now: float) -> int:
        """Return how many messages may be received, without regard to groups."""
        self.expire(now)
        return sum(message.visible_at <= now for message in self.messages.values())

    def _available(self, now: float) -> Iterable[SimulatedMessage]:
        messages = self.messages.values()
        if self.is_fifo:
            return available_of_fifo(messages, now, scanned=self.options.scanned_messages)
        return available_of_standard(
            messages,
            now,
            duplicate_rate=self.options.duplicate_rate,
            generator=self._random,
        )

    def _bury(self, message: SimulatedMessage, now: float) -> bool:
        """Move a message that was received too often to the dead-letter queue (G)."""
        options = self.options
        if options.max_receive_count is None or options.dead_letters is None:
            return False
        if message.receive_count < options.max_receive_count:
            return False
        del self.messages[message.message_id]
        buried = replace(message, visible_at=now, handle="")
        if self.is_fifo:
            # Only a FIFO queue restarts the retention (G "Dead-letter queues"), and ensures that
            # its dead letters don't repeat each other (G "Dead-letter queue redrive").
            buried.kept_since = now
            buried.deduplication_id = message.message_id
        options.dead_letters.add(buried, now)
        # Its handles belong to this queue and mean nothing in the other.
        message.is_deleted = True
        return True
