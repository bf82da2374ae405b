"""A queue that follows AWS: visibility, receipt handles, groups, dead letters, limits.

The sources of each behaviour:

- G: SQS Developer Guide ("Visibility timeout", "Dead-letter queues", "FIFO delivery logic",
  "Amazon SQS message quotas", "At-least-once delivery").
- A: SQS API reference, of the action.
- L: LocalStack's test suite, whose answers were recorded from AWS (`aws_validated`).
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.message import LARGEST, SimulatedMessage

#: The most messages in flight for one queue (G "Amazon SQS message quotas").
IN_FLIGHT_LIMIT = 120_000
#: How many messages a FIFO queue looks through for groups that are available (G "Avoid large
#: message backlogs with the same message group ID").
SCANNED_MESSAGES = 120_000
#: For how long a FIFO queue drops messages with an equal deduplication id, in seconds (G "FIFO
#: queue deduplication").
DEDUPLICATION_SECONDS = 300.0
#: In public records of six accounts from 2020 and 2021, AWS's sequence numbers were all this, plus
#: 256,000 for each millisecond of `SentTimestamp`, plus a little. So they have 20 digits, and don't
#: fit into 64 bits. The API reference only says that their length is "128 bits".
FIRST_NUMBER, NUMBERS_A_SECOND, NUMBER_STEP = 2**64, 256_000_000, 256


@dataclass(kw_only=True)
class QueueOptions:
    """A queue's attributes, and behaviour that is random at AWS. Times in seconds.

    Attributes:
        delay: For how long each message is hidden after it was sent.
        largest_message: In bytes.
        retention: A message is deleted after this time, in flight or not.
        wait: For how long a receive waits if it does not set a time.
        kept: Further attributes, which have no effect.
        max_receive_count: After so many receives SQS moves a message to `dead_letters`.
        scanned_messages: How many of a FIFO queue's messages SQS looks through for available
            groups. Messages that were sent later wait, whatever their group (G).
        late_extension: Whether an expired handle can still hide its message if no one has
            received the message again. AWS answered 200 and changed nothing (L). Its guide
            does not promise that, so both are worth a test.
        content_based_deduplication: Whether a FIFO queue accepts messages without a
            deduplication id, and detects repetitions by their body.
        deduplicates_by_group: Whether another group may use the same deduplication id.
        duplicate_rate: How often a receive returns a message that is in flight, because standard
            queues deliver "at least once" (G).
    """

    visibility_timeout: int = 30
    delay: int = 0
    largest_message: int = LARGEST
    retention: int = 345_600
    wait: int = 0
    kept: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_receive_count: int | None = None
    dead_letters: SimulatedQueue | None = None
    in_flight_limit: int = IN_FLIGHT_LIMIT
    scanned_messages: int = SCANNED_MESSAGES
    late_extension: bool = False
    content_based_deduplication: bool = False
    deduplicates_by_group: bool = False
    duplicate_rate: float = 0.0


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
        on_delete: Callable[[SimulatedMessage], None],
    ) -> None:
        self.url = url
        self.name = url.rsplit("/", 1)[-1]
        self.is_fifo = url.endswith(".fifo")
        self.options = options
        self.created_at = self.modified_at = 0.0
        self.messages: dict[str, SimulatedMessage] = {}
        self._random = generator
        self._on_delete = on_delete
        # Those of deleted messages, too.
        self._by_handle: dict[str, SimulatedMessage] = {}
        self._by_deduplication: dict[tuple[str | None, str], SimulatedMessage] = {}
        self._last_number = 0
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
                deduplication_id = hashlib.sha256(message.body.encode()).hexdigest()
            if deduplication_id is None:
                text = "The queue should either have ContentBasedDeduplication enabled or "
                text += "MessageDeduplicationId provided explicitly"
                raise SqsError("InvalidParameterValue", text)
            key = message.group_id if self.options.deduplicates_by_group else None, deduplication_id
            first = self._by_deduplication.get(key)
            if first is not None and now < first.sent_at + DEDUPLICATION_SECONDS:
                return first
            self._by_deduplication[key] = message
        message.deduplication_id = deduplication_id
        self.add(message, now)
        return message

    def add(self, message: SimulatedMessage, now: float) -> None:
        """Add a message behind the others."""
        if self.is_fifo:
            by_time = FIRST_NUMBER + int(now * NUMBERS_A_SECOND)
            self._last_number = max(self._last_number + NUMBER_STEP, by_time)
            message.sequence_number = self._last_number
        self.messages[message.message_id] = message
        self._oldest = min(self._oldest, message.sent_at)

    def expire(self, now: float) -> None:
        """Delete the messages whose retention has ended, even those in flight (G)."""
        oldest = now - self.options.retention
        if self._oldest > oldest:
            return
        for message in list(self.messages.values()):
            if message.sent_at <= oldest:
                message.is_deleted = True
                del self.messages[message.message_id]
        self._oldest = min((each.sent_at for each in self.messages.values()), default=math.inf)

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
        room = limit = self.options.in_flight_limit
        if len(self.messages) >= limit:
            room -= self.in_flight(now)
        if room <= 0:
            if is_long_poll or self.is_fifo:
                return []
            raise SqsError("OverLimit", "The in-flight message limit is reached.", 403)
        received: list[SimulatedMessage] = []
        for message in list(self.available(now)):
            if len(received) == min(count, room):
                break
            if not self._bury(message, now):
                received.append(message)
        for message in received:
            handle = f"AQEB{self._random.getrandbits(128):032x}"
            self._by_handle[handle] = message
            message.receive(handle, now, hidden_for)
        return received

    def change_visibility(self, handle: str, timeout: int, now: float) -> None:
        """Hide a message for `timeout` seconds from now; 0 makes it visible.

        Raises:
            SqsError: See the checks below.
        """
        message = self._find(handle, now)
        if not 0 <= timeout <= SQS.longest_timeout:
            raise errors.invalid("VisibilityTimeout", timeout, "Must be between 0 and 43200")
        if message.is_deleted:
            raise errors.not_available(handle)
        self._check_use(handle, message, now)
        if now >= message.visible_at and not self.options.late_extension:
            # On a standard queue: answered with success, and nothing changes (L).
            return
        # On a standard queue a stale handle still changes the message, and so breaks the lease of
        # anyone who has received it since (L).
        if now + timeout > message.received_at + SQS.longest_hold:
            limit = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
            raise errors.invalid("VisibilityTimeout", timeout, limit)
        message.visible_at = now + timeout

    def delete(self, handle: str, now: float) -> None:
        """Delete a message.

        On a standard queue a stale handle "succeeds" and deletes nothing, and an expired
        one still deletes (A, DeleteMessage). A FIFO queue refuses both (L).

        Raises:
            SqsError: No such handle was ever made, or a FIFO queue refuses it.
        """
        message = self._find(handle, now)
        if message.is_deleted:
            return
        self._check_use(handle, message, now)
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

    def available(self, now: float) -> Iterator[SimulatedMessage]:
        """Return the messages that a receive may bring, in its order.

        On a standard queue: those that are visible, and at random some that are in flight. On a
        FIFO queue: the visible messages that no other message of their group blocks.
        They come group by group: a receive takes from one group first (G "FIFO delivery logic").
        The groups come in the order in which their first messages were sent or became
        visible again. So a released group comes after those that waited meanwhile (LocalStack's
        tests of FIFO groups, with answers recorded from AWS).
        """
        rate = self.options.duplicate_rate
        if not self.is_fifo:
            for message in self.messages.values():
                if message.visible_at <= now or (
                    message.receive_count and rate and self._random.random() < rate
                ):
                    yield message
            return
        groups: dict[str | None, list[SimulatedMessage]] = {}
        for message in islice(self.messages.values(), self.options.scanned_messages):
            groups.setdefault(message.group_id, []).append(message)
        for group in sorted(groups.values(), key=lambda group: group[0].visible_at):
            # Behind one in flight or delayed, later messages of its group wait, and earlier ones do
            # not (LocalStack's test_fifo_group_visibility_extends_...).
            yield from takewhile(lambda message: message.visible_at <= now, group)

    def _find(self, handle: str, now: float) -> SimulatedMessage:
        self.expire(now)
        message = self._by_handle.get(handle)
        if message is None:
            text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
            raise SqsError("ReceiptHandleIsInvalid", text, 404)
        return message

    def _check_use(self, handle: str, message: SimulatedMessage, now: float) -> None:
        """On a FIFO queue, refuse a handle that is not its message's last, or has expired (L)."""
        if self.is_fifo and (handle != message.handle or now >= message.visible_at):
            raise errors.handle_expired(handle)

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
            # So dead letters don't repeat each other (G "Dead-letter queue redrive").
            buried.deduplication_id = message.message_id
        options.dead_letters.add(buried, now)
        # Its handles belong to this queue and mean nothing in the other.
        message.is_deleted = True
        return True
