"""kombu's SQS transport, fed by the keeper, which also gets every ack and reject.

The worker's step makes kombu use it for `sqs://` URLs (`register_transport`).
"""

from __future__ import annotations

from typing import Any

import kombu.transport
from kombu.transport import SQS

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.binding import bound
from celery_sqs_heartbeat.transport.channel import Channel as FedChannel
from celery_sqs_heartbeat.transport.feed import Arrivals

#: How long a thread waits at once if it may wait without end, in seconds.
_LONGEST_WAIT = 3_600.0


class Transport(SQS.Transport):
    """kombu's SQS transport. Its channels have leases while a heartbeat is bound.

    Attributes:
        arrived: Tells the consumer's thread that messages have arrived; None without a heartbeat.
    """

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._heartbeat = bound()
        self.arrived = Arrivals(self._heartbeat.keeper) if self._heartbeat is not None else None

    def Channel(self, connection: Any) -> SQS.Channel:  # noqa: N802
        """Make a channel: kombu's own if no heartbeat is bound (a producer, a pool process)."""
        heartbeat = self._heartbeat
        if heartbeat is None or heartbeat is not bound():
            return SQS.Channel(connection)
        return FedChannel(connection, heartbeat=heartbeat)

    def listen(self, hub: Any) -> None:
        """Deliver what arrives on an event loop. A loop that was reset has to be asked again."""
        if self.arrived is not None:
            self.arrived.listen(hub, self._deliver_arrived)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver messages without an event loop.

        Raises:
            TimeoutError: None has arrived within `timeout` seconds.
        """
        fed = self._fed()
        for channel in fed:
            channel.feed.consume()
        if self.arrived is None or not fed or any(channel.has_unleased for channel in fed):
            if not self._deliver_arrived():
                # kombu receives, in this thread.
                super().drain_events(connection, timeout)
            return
        until = None if timeout is None else clock.now() + timeout
        while not self._deliver_arrived():
            left = _LONGEST_WAIT if until is None else until - clock.now()
            if left <= 0:
                raise TimeoutError
            self.arrived.wait(left)

    def close_connection(self, connection: Any) -> None:
        """Close the channels."""
        super().close_connection(connection)
        if self.arrived is not None:
            self.arrived.close()

    def _fed(self) -> list[FedChannel]:
        """Return the channels that consume with leases."""
        return [
            each
            for each in self.channels
            if isinstance(each, FedChannel) and each.feed.is_consuming
        ]

    def _deliver_arrived(self) -> bool:
        if self.arrived is not None and self._heartbeat is not None:
            with self.arrived.awake():
                self._heartbeat.keeper.pull()
        is_any = False
        for channel in self._fed():
            is_any |= channel.feed.deliver()
        return is_any


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
