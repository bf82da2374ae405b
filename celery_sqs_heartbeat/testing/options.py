"""What a simulated queue does, as its attributes and the tests have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from celery_sqs_heartbeat.testing.contents import LARGEST
from celery_sqs_heartbeat.testing.message import SimulatedMessage

#: Messages in flight of one queue (SQS Developer Guide, "Amazon SQS message quotas").
IN_FLIGHT_LIMIT = 120_000
#: How many messages a FIFO queue looks through for groups that are available (SQS Developer Guide,
#: "Avoid large message backlogs with the same message group ID").
SCANNED_MESSAGES = 120_000


class DeadLetterQueue(Protocol):
    """Where messages go that were received too often."""

    @property
    def name(self) -> str:
        """Its name."""

    def add(self, message: SimulatedMessage, now: float) -> object:
        """Take a message in."""


@dataclass(kw_only=True)
class QueueOptions:
    """A queue's attributes, and what AWS leaves to chance. Times in seconds.

    G and L are the sources that the module `queue` names.

    Attributes:
        delay: For how long each message is hidden after its send.
        largest_message: In bytes.
        retention: After so long a message is gone, in flight or not.
        wait: For how long a receive waits that does not say.
        kept: Further attributes, which have no effect.
        max_receive_count: After so many receives a message goes to `dead_letters`.
        scanned_messages: So many of a FIFO queue's messages are looked through for groups that
            are available: what was sent later waits, whatever its group (G).
        late_extension: Whether an expired handle that nobody else has superseded can
            still hide its message. AWS answered 200 and changed nothing (L); its guide
            does not promise that, so both are worth a test.
        content_based_deduplication: Whether a FIFO queue takes messages without an id for
            that, and tells repetitions by their body.
        deduplicates_by_group: Whether ids for that may repeat in another group.
        duplicate_rate: How often a receive brings a message that is in flight: standard
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
