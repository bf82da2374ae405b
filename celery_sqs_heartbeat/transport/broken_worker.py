"""Distinguishes a broken worker from bad messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

logger = logging.getLogger(__name__)

#: The worker counts as broken after this many failures in a row, each of a different message. One
#: bad message is normal, and two may arrive together. Each failure costs a receive, so the number
#: must be small. With a `maxReceiveCount` of 3, a broken worker that continues would move whole
#: queues to the dead-letter queue without running them.
BROKEN_AFTER = 3


def raise_error(error: Exception) -> None:
    """Raise an error again.

    Raises:
        Exception: The error.
    """
    raise error


class BrokenWorkerDetector:
    """Counts a worker's consecutive failures for each step in the handling of a message.

    Attributes:
        end: Ends the worker, as the error would end a stock worker.
        is_found: Whether the worker is broken.
    """

    def __init__(self) -> None:
        self.end: Callable[[Exception], object] = raise_error
        self.is_found = False
        self._failed: dict[str, set[Hashable]] = {}

    def failed(self, what: str, message: Hashable, error: Exception) -> bool:
        """Note a failure. Return whether the worker is broken, and end it if so.

        A message that fails repeatedly counts once.

        Args:
            what: The step that failed, as a participle such as "delivered".
        """
        failed = self._failed.setdefault(what, set())
        failed.add(message)
        if len(failed) >= BROKEN_AFTER and not self.is_found:
            self.is_found = True
            logger.critical(
                "sqs-heartbeat: %d different messages in a row could not be %s: the worker is "
                "broken (%s: %s). It releases the messages it has not started, and exits",
                len(failed),
                what,
                type(error).__name__,
                error,
            )
            self.end(error)
        return self.is_found

    def worked(self, what: str) -> None:
        """Note a success: the messages caused the failures before it, not the worker."""
        self._failed.pop(what, None)
