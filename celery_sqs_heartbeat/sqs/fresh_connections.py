"""Lets a client use no connection that may be dead.

A firewall forgets connections that are idle, and drops silently what is sent on them later. A call
on such a connection takes as long as its timeout. If the next one found another such connection,
the leases of both would run out.
"""

from __future__ import annotations

from typing import Any

from botocore.client import BaseClient

from celery_sqs_heartbeat.common import clock

#: How long a client uses its connections, in seconds. Firewalls forget idle ones later.
MAX_AGE_SECONDS = 10.0
#: An attribute of clients whose connections are watched.
_SEEN = "sqs_heartbeat_connections"


def keep_connections_fresh(client: Any) -> None:
    """Let a boto3 client open new connections every ten seconds, and after a call that failed.

    Calls that are under way keep theirs. A second call does nothing.
    """
    if not isinstance(client, BaseClient) or hasattr(client, _SEEN):
        return
    setattr(client, _SEEN, True)
    ends_at = 0.0

    def check_age(**_: Any) -> None:
        nonlocal ends_at
        if (now := clock.now()) >= ends_at:
            ends_at = now + MAX_AGE_SECONDS
            client.close()

    def check_answer(caught_exception: Exception | None = None, **_: Any) -> None:
        if caught_exception is not None:
            client.close()

    client.meta.events.register("before-send", check_age)
    client.meta.events.register("needs-retry", check_answer)
