"""The receipt handles that a queue has returned."""

from __future__ import annotations

import random

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.message import SimulatedMessage


class Handles:
    """The message of each handle. Handles of deleted messages stay known.

    Args:
        is_fifo: Whether the queue refuses handles that are stale or expired.
    """

    def __init__(self, generator: random.Random, *, is_fifo: bool) -> None:
        self._random = generator
        self._is_fifo = is_fifo
        self._messages: dict[str, SimulatedMessage] = {}

    def new(self, message: SimulatedMessage) -> str:
        """Return another handle of a message."""
        handle = f"AQEB{self._random.getrandbits(128):032x}"
        self._messages[handle] = message
        return handle

    def find(self, handle: str) -> SimulatedMessage:
        """Return the message of a handle.

        Raises:
            SqsError: No such handle was ever made.
        """
        message = self._messages.get(handle)
        if message is None:
            raise errors.invalid_handle(handle)
        return message

    def check_use(self, handle: str, message: SimulatedMessage, now: float) -> None:
        """On a FIFO queue, refuse a handle that is not its message's last, or has expired.

        Raises:
            SqsError: The handle is refused (LocalStack's AWS snapshots).
        """
        if self._is_fifo and (handle != message.handle or now >= message.visible_at):
            raise errors.handle_expired(handle)
