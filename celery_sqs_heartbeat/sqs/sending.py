"""Stops a call that its keeper has given up, and keeps calls off dead connections.

A call can hang before anything is sent, for example while credentials are renewed. By then its
leases have joined another call. If it were still sent, it could hide a message that was released
in the meantime.

A firewall forgets connections that are idle, and drops silently what is sent on them later. A call
on such a connection takes as long as its timeout. If the next one found another such connection,
the leases of both would run out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from botocore.client import BaseClient

from celery_sqs_heartbeat.common import clock

_may_send: ContextVar[Callable[[], bool]] = ContextVar("may_send", default=lambda: True)

#: How long a client uses its connections, in seconds. Firewalls forget idle ones later.
MAX_AGE_SECONDS = 10.0
#: An attribute of guarded clients.
_GUARDED = "sqs_heartbeat_guarded"


class CallGivenUp(OSError):
    """The keeper no longer waits for this call. Nothing was sent."""


@contextmanager
def sending_while(client: Any, may_send: Callable[[], bool]) -> Iterator[None]:
    """Call `may_send` right before a client sends a call of this thread or greenlet.

    A guarded client does that itself. For other clients it is done here.

    Raises:
        CallGivenUp: The call may not be sent.
    """
    token = _may_send.set(may_send)
    try:
        if getattr(client, _GUARDED, False) is not True:
            _refuse_given_up()
        yield
    finally:
        _may_send.reset(token)


def guard(client: Any) -> None:
    """Let a boto3 client send nothing for a call that was given up, or on a dead connection.

    It opens new connections every ten seconds, and after a call that failed. Calls that are under
    way keep theirs. A second call does nothing.
    """
    if not isinstance(client, BaseClient) or hasattr(client, _GUARDED):
        return
    setattr(client, _GUARDED, True)
    ends_at = 0.0

    def check_age(**_: Any) -> None:
        nonlocal ends_at
        if (now := clock.now()) >= ends_at:
            ends_at = now + MAX_AGE_SECONDS
            client.close()

    def check_answer(caught_exception: Exception | None = None, **_: Any) -> None:
        if caught_exception is not None:
            client.close()

    client.meta.events.register("before-send", _refuse_given_up)
    client.meta.events.register("before-send", check_age)
    client.meta.events.register("needs-retry", check_answer)


def _refuse_given_up(**_: Any) -> None:
    if not _may_send.get()():
        raise CallGivenUp("the call took too long before it was sent")
