"""Stops a call before it is sent to SQS, if its keeper has given it up.

A call can hang before anything is sent, for example while credentials are renewed. By then its
leases have joined another call. If it were still sent, it could hide a message that was released
in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_may_send: ContextVar[Callable[[], bool]] = ContextVar("may_send", default=lambda: True)
_prepare: ContextVar[Callable[[], object]] = ContextVar("prepare", default=lambda: None)

#: An attribute of clients that check before they send.
_GUARDED = "sqs_heartbeat_asks"


class CallGivenUp(OSError):
    """The keeper no longer waits for this call. Nothing was sent."""


@contextmanager
def sending_while(
    may_send: Callable[[], bool], prepare: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Call `may_send` right before a client sends a call of this thread or greenlet.

    Args:
        prepare: Called by `prepared`: from then on, nothing is sent before `may_send` is called.
    """
    tokens = _may_send.set(may_send), _prepare.set(prepare)
    try:
        yield
    finally:
        _may_send.reset(tokens[0])
        _prepare.reset(tokens[1])


def prepared(make: Callable[[], Any]) -> Any:
    """Return the client of a call. A call that was given up is not sent.

    A guarded client checks that itself, right before it sends. For other clients it is checked
    here, after the client was made.

    Args:
        make: Returns the client, and may take a long time.

    Raises:
        CallGivenUp: The call was given up, and the client does not check that itself.
    """
    _prepare.get()()
    client = make()
    if getattr(client, _GUARDED, False) is not True:
        _refuse_given_up()
    return client


def guard(client: Any) -> None:
    """Make a boto3 client send nothing for a call that was given up."""
    client.meta.events.register("before-send", _refuse_given_up)
    setattr(client, _GUARDED, True)


def _refuse_given_up(**_: Any) -> None:
    if not _may_send.get()():
        raise CallGivenUp("the call took too long before it was sent")
