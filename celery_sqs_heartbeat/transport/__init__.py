"""kombu's SQS transport, fed by the keeper, which also gets every ack and reject.

The worker's step makes kombu use it for `sqs://` URLs (`register_transport`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

import kombu.transport
from botocore.exceptions import ClientError
from kombu.asynchronous import get_event_loop, set_event_loop
from kombu.transport import SQS
from kombu.transport.SQS import UndefinedQueueException

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.errors import ConfigurationError, UnusableQueues
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.options import creation_faults
from celery_sqs_heartbeat.sqs.sending import guard
from celery_sqs_heartbeat.transport.binding import Heartbeat, bound
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.feed import Arrivals, Feed
from celery_sqs_heartbeat.transport.settling import QoS, SettlingChannel


class FedChannel(SettlingChannel):
    """Consumes from queues with leases.

    The path of a message: the keeper receives it and hands it over to `Feed`, which has `Deliverer`
    deliver it where the consumer runs. `SettlingChannel` passes its ack or reject to the keeper.

    Attributes:
        feed: Has the messages of the queues that are leased.
    """

    QoS = QoS

    def __init__(self, connection: Any, *, heartbeat: Heartbeat) -> None:
        _enter_event_loop(heartbeat.hub)
        super().__init__(connection, heartbeat=heartbeat)
        self.feed = Feed(self, Deliverer(self), connection.arrived.set)

    @property
    def visibility_timeout(self) -> Any:
        """The timeout of a queue that kombu must create now, if the options for that are right."""
        if faults := [*creation_faults(self.transport_options)]:
            raise ConfigurationError(faults)
        return super().visibility_timeout

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """End a worker whose start fails in the block.

        Args:
            what: The error's description.
        """
        try:
            yield
        except (ClientError, UndefinedQueueException, ConfigurationError) as error:
            if not self.heartbeat.leased.has_begun:
                is_ours = isinstance(error, ConfigurationError)
                self.heartbeat.refuse(error if is_ours else UnusableQueues(what, str(error)))
            raise

    def _update_queue_cache(self, queue_name_prefix: str) -> None:
        """List the queues at SQS."""
        with self._refusing("SQS does not list the queues"):
            super()._update_queue_cache(queue_name_prefix)

    def sqs(self, queue: str | None = None) -> Any:
        """Return the boto3 client for a queue."""
        client = super().sqs(queue)
        guard(client)
        return client

    def _new_queue(self, queue: str, **kwargs: Any) -> Any:
        """Return a queue's URL. Create the queue if it does not exist."""
        # kombu calls this for each message, too, so the block is entered only after an error.
        try:
            return super()._new_queue(queue, **kwargs)
        except Exception:
            with self._refusing(f"queue {queue!r} can't be used"):
                raise

    def _size(self, queue: str) -> Any:
        """Return how many messages are in a queue. kombu asks when it declares the queue.

        Nothing depends on the number, so a missing permission does not end the worker.
        """
        try:
            return super()._size(queue)
        except ClientError:
            return 0

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue, after its attributes have been read and checked."""
        if not no_ack:
            self._prepare(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def _prepare(self, queue: str) -> None:
        """Make a queue ready to be consumed from. Before the first one, check all of them.

        Raises:
            ConfigurationError: The settings do not fit a queue.
        """
        heartbeat, url_of = self.heartbeat, self.queue_url
        broker = BrokerConfig.of_channel(self)
        try:
            if not heartbeat.leased.has_begun:
                # All of them now, because the event loop polls the first one as soon as the worker
                # consumes from it.
                names = heartbeat.start_queues()
                heartbeat.check_names(self.is_listed)
                heartbeat.leased.check({name: url_of(name) for name in names}, broker)
            heartbeat.leased.prepare(queue, url_of(queue), broker)
        except ConfigurationError as error:
            heartbeat.refuse(error)
            raise

    def basic_cancel(self, consumer_tag: str) -> Any:
        """Stop consuming from a queue."""
        queue = self._tag_to_queue.get(consumer_tag)
        cancelled = super().basic_cancel(consumer_tag)
        # It may not have been its queue's last consumer.
        if queue is not None and queue not in self._active_queues:
            self.feed.cancel(queue)
        return cancelled

    def close(self) -> None:
        """Close the channel. It receives no more."""
        super().close()
        self.feed.stop()

    def basic_qos(self, *args: Any, **kwargs: Any) -> None:
        """Change the prefetch count, and receive what there is room for now."""
        super().basic_qos(*args, **kwargs)
        self.feed.fill()

    def _schedule_queue(self, queue: str) -> None:
        """Receive from a queue of an event loop. kombu calls this in the loop's first tick."""
        if self.is_leased(queue):
            self.connection.listen(self.hub)
            self.feed.consume()
        else:
            super()._schedule_queue(queue)

    @property
    def has_unleased(self) -> bool:
        """Whether it consumes from a queue whose messages are not leased."""
        return not all(map(self.is_leased, list(self._active_queues)))

    def _get_bulk(self, queue: str, *args: Any, **kwargs: Any) -> None:
        """Poll a queue whose messages are not leased, without an event loop."""
        if self.is_leased(queue):
            raise Empty
        super()._get_bulk(queue, *args, **kwargs)


def _enter_event_loop(hub: Any) -> None:
    """Make the worker's event loop the current one again, if there is none.

    Since kombu 5.7 there is none after a connection was lost (`Hub.reset`), and a channel made
    without an event loop never polls. A stock worker continues, and receives nothing.
    """
    if hub and get_event_loop() is None:
        set_event_loop(hub)


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
