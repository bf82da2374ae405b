"""Says once that the journal loses something, and once that it does no more."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class Trouble:
    """One kind of trouble. `doing` is what does not work, for the log."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._is_on = False

    def note(self, cause: object) -> None:
        """Take note that it does not work."""
        if not self._is_on:
            self._is_on = True
            logger.warning(
                "sqs-heartbeat: %s does not work (%s); messages are not affected, but some of what "
                "happens to them is not recorded: check what sqs_heartbeat_journal names",
                self._doing,
                cause,
            )

    def clear(self, lost: int) -> None:
        """Take note that it works. `lost` is how many lines were lost so far."""
        if self._is_on:
            self._is_on = False
            logger.warning(
                "sqs-heartbeat: %s works again; lines lost so far: %d", self._doing, lost
            )
