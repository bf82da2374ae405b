"""Lets other threads wake an event loop that has nothing to read.

A pool of threads gives the loop no file descriptor. While no poll is open either, kombu's loop
sleeps for 0.1 s at a time instead of waiting for events (`Hub.create_loop`, 5.7), and a call from
another thread does not wake it. So a worker whose prefetch is full would notice an ack, and poll
again, up to 0.1 s late.
"""

from __future__ import annotations

import functools
import os
from typing import Any


def make_wakeable(hub: Any) -> None:
    """Give an event loop something to read, unless it has. A reset loop has nothing again."""
    if not (hub.readers or hub.writers):
        hub.add_reader(_silent_pipe(os.getpid())[0], _ignore)


@functools.lru_cache(maxsize=1)
def _silent_pipe(_pid: int) -> tuple[int, int]:
    """Return a pipe of this process, into which nothing is ever written."""
    return os.pipe()


def _ignore() -> None:
    """Do nothing."""
