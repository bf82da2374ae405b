"""Waits until one of a few descriptors can be read."""

from __future__ import annotations

import select
from collections.abc import Iterable

#: A descriptor's end counts, too: a socket's that the other side has closed, a process's.
_EVENTS = select.POLLIN | select.POLLHUP | select.POLLERR


def wait_readable(descriptors: Iterable[int], seconds: float | None) -> bool:
    """Return whether one of them can be read, as soon as that is so.

    Not by `select.select`, which takes no descriptor from 1,024 on: a worker with many connections
    hands its keeper such ones.

    Args:
        seconds: The longest wait; None for any.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, _EVENTS)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
