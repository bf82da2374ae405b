"""How a FIFO queue detects repetitions of a message."""

from __future__ import annotations

import hashlib

from celery_sqs_heartbeat.testing.message import SimulatedMessage

#: For how long it drops messages with an equal deduplication id, in seconds (SQS Developer Guide,
#: "FIFO queue deduplication").
DEDUPLICATION_SECONDS = 300.0


class Deduplication:
    """The messages that were sent with each deduplication id."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str | None, str], tuple[float, SimulatedMessage]] = {}

    def first(
        self, message: SimulatedMessage, deduplication_id: str, now: float, *, by_group: bool
    ) -> SimulatedMessage:
        """Return the message that this one repeats, or this one if it repeats none.

        Args:
            by_group: Whether another group may use the same id.
        """
        key = message.group_id if by_group else None, deduplication_id
        seen = self._seen.get(key)
        if seen is not None and now < seen[0] + DEDUPLICATION_SECONDS:
            return seen[1]
        self._seen[key] = now, message
        return message


def id_by_content(message: SimulatedMessage) -> str:
    """Return the id of a message that was sent without one (SQS API reference, SendMessage)."""
    return hashlib.sha256(message.body.encode()).hexdigest()
