"""Remembers what has been logged, for lines that must be logged only once."""

from __future__ import annotations


class Once:
    """A memory of subjects. They are few: they name queues, never anything a sender chooses."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def first_time(self, subject: str) -> bool:
        """Return True once for each subject."""
        is_new = subject not in self._subjects
        self._subjects.add(subject)
        return is_new
