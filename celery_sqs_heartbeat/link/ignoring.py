"""Has a keeper ignore what ends its worker: it ends after the worker, in its own time.

Ctrl+C in a terminal, a supervisor that signals every process of a service, a terminal that is
closed. From the keeper's first moment on: its interpreter and its imports take a second on a busy
machine, and a signal that comes meanwhile must not end it either.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Hold the signals back from this thread, and for good from what it starts meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignore them, those that were held back included."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
