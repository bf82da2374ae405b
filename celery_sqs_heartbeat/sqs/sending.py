"""Stops a call on its way to SQS when its keeper has given it up meanwhile.

A call can hang before anything is sent, as while credentials are renewed. Its leases have joined
another call by then. Sent after all, it could hide a message again that was released since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_may_send: ContextVar[Callable[[], bool]] = ContextVar("may_send", default=lambda: True)


class CallGivenUp(OSError):
    """The keeper does not wait for this call any more; nothing was sent."""


@contextmanager
def sending_while(may_send: Callable[[], bool]) -> Iterator[None]:
    """Ask `may_send` right before a client sends what this thread or greenlet asks of it."""
    token = _may_send.set(may_send)
    try:
        yield
    finally:
        _may_send.reset(token)


def guard(client: Any) -> None:
    """Have a boto3 client send nothing for a call that was given up."""
    client.meta.events.register("before-send", _refuse_given_up)


def _refuse_given_up(**_: Any) -> None:
    if not _may_send.get()():
        raise CallGivenUp("the call took too long before it was sent")
