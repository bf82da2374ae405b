"""A kombu channel whose messages are leased from their receive to their delete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

from botocore.exceptions import ClientError
from kombu.asynchronous import get_event_loop, set_event_loop
from kombu.transport.SQS import UndefinedQueueException

from celery_sqs_heartbeat.errors import ConfigurationError, UnusableQueues
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.options import creation_faults
from celery_sqs_heartbeat.sqs.sending import guard
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.feed import Feed
from celery_sqs_heartbeat.transport.settling import QoS, SettlingChannel


class Channel(SettlingChannel):
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
        except (ClientError, UndefinedQueueException) as error:
            if not self.heartbeat.leased.has_begun:
                self.heartbeat.refuse(UnusableQueues(what, str(error)))
            raise
        except ConfigurationError as error:
            if not self.heartbeat.leased.has_begun:
                self.heartbeat.refuse(error)
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
