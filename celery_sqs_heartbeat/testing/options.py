"""The options of a simulated queue: its attributes, and settings for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from celery_sqs_heartbeat.testing.contents import LARGEST
from celery_sqs_heartbeat.testing.message import SimulatedMessage

#: The most messages in flight for one queue (SQS Developer Guide, "Amazon SQS message quotas").
IN_FLIGHT_LIMIT = 120_000
#: How many messages a FIFO queue looks through for groups that are available (SQS Developer Guide,
#: "Avoid large message backlogs with the same message group ID").
SCANNED_MESSAGES = 120_000


class DeadLetterQueue(Protocol):
    """The queue for messages that were received too often."""

    @property
    def name(self) -> str:
        """Its name."""

    def add(self, message: SimulatedMessage, now: float) -> object:
        """Add a message."""


@dataclass(kw_only=True)
class QueueOptions:
    """A queue's attributes, and behaviour that is random at AWS. Times in seconds.

    The module `queue` explains the sources G and L.

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
    dead_letters: DeadLetterQueue | None = None
    in_flight_limit: int = IN_FLIGHT_LIMIT
    scanned_messages: int = SCANNED_MESSAGES
    late_extension: bool = False
    content_based_deduplication: bool = False
    deduplicates_by_group: bool = False
    duplicate_rate: float = 0.0
