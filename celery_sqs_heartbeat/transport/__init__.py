"""kombu's SQS transport with leases: what is received, acked and rejected goes to the keeper.

The worker's step has kombu make it for `sqs://` URLs (`register_transport`).
"""

from __future__ import annotations

from typing import Any

import kombu.transport
from kombu.transport import SQS

from celery_sqs_heartbeat.transport.binding import bound
from celery_sqs_heartbeat.transport.channel import Channel


class Transport(SQS.Transport):
    """kombu's SQS transport, whose channels have leases while a heartbeat is bound."""

    def Channel(self, connection: Any) -> SQS.Channel:  # noqa: N802
        """Make a channel: kombu's own where no heartbeat is bound (a producer, a pool process)."""
        heartbeat = bound()
        if heartbeat is None:
            return SQS.Channel(connection)
        return Channel(connection, heartbeat=heartbeat)


#: Where kombu looks up transports by URL scheme, and what is to be found there.
_ALIAS = f"{Transport.__module__}:{Transport.__qualname__}"
_SCHEMES = ("sqs", "SQS")


def register_transport() -> None:
    """Have kombu use this transport for every `sqs://` URL in this process from now on.

    The setting `broker_transport` would not do: after a failover to another broker URL
    kombu goes by that URL's scheme alone. Classes that kombu looked up already are cached,
    and so are they replaced too.
    """
    for scheme in _SCHEMES:
        kombu.transport.TRANSPORT_ALIASES[scheme] = _ALIAS
        kombu.transport._transport_cache.pop(scheme, None)
