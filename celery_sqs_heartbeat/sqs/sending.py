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
_prepare: ContextVar[Callable[[], object]] = ContextVar("prepare", default=lambda: None)

#: An attribute of clients that ask before they send.
_GUARDED = "sqs_heartbeat_asks"


class CallGivenUp(OSError):
    """The keeper does not wait for this call any more; nothing was sent."""


@contextmanager
def sending_while(
    may_send: Callable[[], bool], prepare: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Ask `may_send` right before a client sends what this thread or greenlet asks of it.

    Args:
        prepare: Called where nothing is sent before `may_send` is asked.
    """
    tokens = _may_send.set(may_send), _prepare.set(prepare)
    try:
        yield
    finally:
        _may_send.reset(tokens[0])
        _prepare.reset(tokens[1])


def prepared(make: Callable[[], Any]) -> Any:
    """Return the client of a call: nothing is sent before it is made, or before a guarded one asks.

    Args:
        make: Returns the client, and may take its time.

    Raises:
        CallGivenUp: The call was given up meanwhile, and the client would not ask.
    """
    _prepare.get()()
    client = make()
    if getattr(client, _GUARDED, False) is not True:
        _refuse_given_up()
    return client


def guard(client: Any) -> None:
    """Have a boto3 client send nothing for a call that was given up."""
    client.meta.events.register("before-send", _refuse_given_up)
    setattr(client, _GUARDED, True)


def _refuse_given_up(**_: Any) -> None:
    if not _may_send.get()():
        raise CallGivenUp("the call took too long before it was sent")
