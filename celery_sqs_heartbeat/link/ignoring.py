"""Makes a keeper ignore the signals that end its worker: it exits after the worker.

Such signals come from Ctrl+C, from a closed terminal, and from a supervisor that signals every
process of a service. The keeper ignores them from its start: on a busy machine its interpreter and
imports take a second, and a signal during that second must not end it either.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Block the signals in this thread during the block.

    Processes that it starts in the block inherit this, and keep the signals blocked.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignore the signals, including those that were blocked and are pending."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
