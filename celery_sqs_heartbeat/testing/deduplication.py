"""How a FIFO queue tells repetitions of a message."""

from __future__ import annotations

import hashlib

from celery_sqs_heartbeat.testing.message import SimulatedMessage

#: It drops an equal deduplication id for so long, in seconds (SQS Developer Guide, "FIFO queue
#: deduplication").
DEDUPLICATION_SECONDS = 300.0


class Deduplication:
    """What was sent under each deduplication id."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str | None, str], tuple[float, SimulatedMessage]] = {}

    def first(
        self, message: SimulatedMessage, deduplication_id: str, now: float, *, by_group: bool
    ) -> SimulatedMessage:
        """Return the message that this one repeats, or this one.

        Args:
            by_group: Whether an id may repeat in another group.
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
