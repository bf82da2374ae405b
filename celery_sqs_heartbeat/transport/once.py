"""Remembers what has been logged, for what is to be logged once."""

from __future__ import annotations


class Once:
    """A memory of subjects. They are few: of queues, never of what a sender makes up."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def first_time(self, subject: str) -> bool:
        """Return True once for each subject."""
        is_new = subject not in self._subjects
        self._subjects.add(subject)
        return is_new
