"""Logs once when the journal starts to lose lines, and once when it works again."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class OutageLog:
    """One kind of trouble. `doing` names the failing work in the log."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._is_on = False

    def note(self, cause: object) -> None:
        """Note that it does not work."""
        if not self._is_on:
            self._is_on = True
            logger.warning(
                "sqs-heartbeat: %s does not work (%s). Messages are not affected, but some of "
                "their events are not recorded. Check the place that sqs_heartbeat_journal names",
                self._doing,
                cause,
            )

    def clear(self, lost: int) -> None:
        """Note that it works. `lost` is the number of lines lost so far."""
        if self._is_on:
            self._is_on = False
            logger.warning(
                "sqs-heartbeat: %s works again; lines lost so far: %d", self._doing, lost
            )
