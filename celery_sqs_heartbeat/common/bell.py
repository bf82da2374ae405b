"""Wakes a thread."""

from __future__ import annotations

import threading


class Bell:
    """Wakes one thread that waits, or has its next wait return at once.

    Not a `threading.Event`: setting one takes a lock, and the handler of a signal that interrupts
    just that, and sets it, too, would wait for itself.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake the thread. Rung twice is rung once."""
        try:
            self._silence.release()
        except RuntimeError:
            # It is rung already.
            return

    def wait(self, timeout: float) -> bool:
        """Wait until it is rung, for so many seconds at the most; return whether it was."""
        return self._silence.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))
