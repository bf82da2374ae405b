"""Tells a broken worker from bad messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

logger = logging.getLogger(__name__)

#: Failures in a row, each of another message, after which the worker is taken for broken. One bad
#: message is everyday life, and two may come together. Each costs a receive, so few must do: with a
#: `maxReceiveCount` of 3, a worker that goes on moves whole queues to the dead letters unrun.
BROKEN_AFTER = 3


def raise_error(error: Exception) -> None:
    """Raise an error again, where it belongs.

    Raises:
        Exception: That one.
    """
    raise error


class BrokenWorkerDetector:
    """Counts the failures in a row of what a worker does to messages.

    Attributes:
        end: Ends the worker, as the error would a stock one.
        is_found: Whether the worker is broken.
    """

    def __init__(self) -> None:
        self.end: Callable[[Exception], object] = raise_error
        self.is_found = False
        self._failed: dict[str, set[Hashable]] = {}

    def failed(self, what: str, message: Hashable, error: Exception) -> bool:
        """Note a failure; return whether the worker is broken, and have it end if so.

        A message that fails again and again counts once.

        Args:
            what: Was to be done to the message, such as "delivered".
        """
        failed = self._failed.setdefault(what, set())
        failed.add(message)
        if len(failed) >= BROKEN_AFTER and not self.is_found:
            self.is_found = True
            logger.critical(
                "sqs-heartbeat: %d different messages in a row could not be %s: the worker is "
                "broken (%s: %s). It gives back what it has not started, and ends",
                len(failed),
                what,
                type(error).__name__,
                error,
            )
            self.end(error)
        return self.is_found

    def worked(self, what: str) -> None:
        """Note a success: what failed before was the messages' fault."""
        self._failed.pop(what, None)
