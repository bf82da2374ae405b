"""Waits until one of several descriptors is readable."""

from __future__ import annotations

import select
from collections.abc import Iterable

#: These include the end: a socket that the other side has closed, or a process that has ended.
_EVENTS = select.POLLIN | select.POLLHUP | select.POLLERR


def wait_readable(descriptors: Iterable[int], seconds: float | None) -> bool:
    """Wait until one of the descriptors is readable. Return whether one is.

    `select.select` would fail with descriptors from 1,024 on, which a worker with many connections
    passes to its keeper.

    Args:
        seconds: The longest wait; None to wait indefinitely.
    """
    if not hasattr(select, "poll"):
        # eventlet removes it.
        return bool(select.select([*descriptors], [], [], seconds)[0])
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, _EVENTS)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
