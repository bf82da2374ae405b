"""How long to wait before a keeper that has died is started again."""

from __future__ import annotations

#: Pauses in seconds: none after the first death.
_PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
#: If a keeper has lived for so many seconds, the pauses start over.
LONG_LIFE = 60.0


class RestartBackoff:
    """Counts the deaths of one worker's keepers, and decides the pause after each.

    Attributes:
        count: How many keepers have died.
    """

    def __init__(self) -> None:
        self.count = 0
        # How many died early, in a row.
        self._young = 0

    def note(self, age: float) -> float:
        """Note a death. Return the pause after it, in seconds.

        Args:
            age: How long the keeper lived, in seconds.
        """
        if age >= LONG_LIFE:
            self._young = 0
        pause = self._pause
        self.count += 1
        self._young += 1
        return pause

    def note_refusal(self) -> float:
        """Note that the system could not start a keeper. Return the pause after it, in seconds."""
        self._young += 1
        return self._pause

    @property
    def _pause(self) -> float:
        return _PAUSES[min(self._young, len(_PAUSES) - 1)]
