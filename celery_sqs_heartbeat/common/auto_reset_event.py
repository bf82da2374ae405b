"""Wakes a thread."""

from __future__ import annotations

import threading


class AutoResetEvent:
    """Wakes one waiting thread. If none waits, the next wait returns at once.

    It is not a `threading.Event`, because setting an event takes a lock. If a signal interrupts
    that and its handler sets the event, too, the handler would wait forever.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def set(self) -> None:
        """Wake the thread. Ringing twice has the same effect as ringing once."""
        try:
            self._silence.release()
        except RuntimeError:
            # It was already rung.
            return

    def wait(self, timeout: float) -> bool:
        """Wait for a ring, at most `timeout` seconds. Return whether it rang."""
        return self._silence.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))
