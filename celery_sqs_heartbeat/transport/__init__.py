"""kombu's SQS transport with leases: the keeper gets every received, acked or rejected message.

The worker's step makes kombu use it for `sqs://` URLs (`register_transport`).
"""

from __future__ import annotations

from typing import Any

import kombu.transport
from kombu.transport import SQS

from celery_sqs_heartbeat.transport.binding import bound
from celery_sqs_heartbeat.transport.channel import Channel


class Transport(SQS.Transport):
    """kombu's SQS transport. Its channels have leases while a heartbeat is bound."""

    def Channel(self, connection: Any) -> SQS.Channel:  # noqa: N802
        """Make a channel: kombu's own if no heartbeat is bound (a producer, a pool process)."""
        heartbeat = bound()
        if heartbeat is None:
            return SQS.Channel(connection)
        return Channel(connection, heartbeat=heartbeat)


#: The path by which kombu imports this transport.
_ALIAS = f"{Transport.__module__}:{Transport.__qualname__}"
_SCHEMES = ("sqs", "SQS")


def register_transport() -> None:
    """Make kombu use this transport for every `sqs://` URL in this process from now on.

    The setting `broker_transport` would not be enough: after a failover to another broker URL,
    kombu uses only that URL's scheme. kombu caches the classes it has looked up, so the cache is
    cleared, too.
    """
    for scheme in _SCHEMES:
        kombu.transport.TRANSPORT_ALIASES[scheme] = _ALIAS
        kombu.transport._transport_cache.pop(scheme, None)
