"""A kombu channel whose messages are leased from their receive to their delete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

from botocore.exceptions import ClientError
from kombu.asynchronous import get_event_loop, set_event_loop
from kombu.transport import SQS
from kombu.transport.SQS import UndefinedQueueException

from celery_sqs_heartbeat.errors import ConfigurationError, UnusableQueues
from celery_sqs_heartbeat.sqs.options import creation_faults
from celery_sqs_heartbeat.sqs.sending import guard
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.feed import Feed
from celery_sqs_heartbeat.transport.kombu_channel import (
    KombuChannel,
    with_reported,
    with_timeouts,
)
from celery_sqs_heartbeat.transport.settling import UNKNOWN, AckHandler, QoS, TaskFailure


class Channel(SQS.Channel):
    """Takes kombu's calls, and passes each to the object that handles it.

    The path of a message: the keeper receives it and hands it over to `Feed`, which has `Deliverer`
    deliver it where the consumer runs. `AckHandler` passes its ack or reject to the keeper.

    Args:
        connection: kombu's transport.

    Attributes:
        feed: Has the messages of the queues that are leased.
    """

    QoS = QoS

    def __init__(self, connection: Any, *, heartbeat: Heartbeat) -> None:
        kombu = KombuChannel(self)
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._acks = AckHandler(kombu=kombu, heartbeat=heartbeat)
        self.feed = Feed(
            kombu=kombu,
            heartbeat=heartbeat,
            deliverer=Deliverer(kombu=kombu, heartbeat=heartbeat, acks=self._acks),
            wake=connection.arrived.set,
        )
        self._enter_event_loop()
        super().__init__(connection)

    def _enter_event_loop(self) -> None:
        """Make the worker's event loop the current one again, if there is none.

        Since kombu 5.7 there is none after a connection was lost (`Hub.reset`), and a channel made
        without an event loop never polls. A stock worker continues, and receives nothing.
        """
        if self._heartbeat.hub and get_event_loop() is None:
            set_event_loop(self._heartbeat.hub)

    @property
    def transport_options(self) -> Any:
        """The options of kombu's transport, with a timeout for every call."""
        options = super().transport_options
        wait = options.get("wait_time_seconds", self.default_wait_time_seconds)
        return with_timeouts(options, wait=wait)

    @property
    def visibility_timeout(self) -> Any:
        """The timeout of a queue that kombu must create now, if the options for that are right."""
        if faults := [*creation_faults(self.transport_options)]:
            raise ConfigurationError(faults)
        return super().visibility_timeout

    @property
    def fetch_message_attributes(self) -> Any:
        """The attributes to request with each message: the user's, and those that we report."""
        return with_reported(super().fetch_message_attributes)

    @property
    def get_message_attributes(self) -> Any:
        """The attributes to request with each message, by kind. kombu 5.5 does not ask for them.

        All of the sender's are requested: a message that is sent again must have them.
        """
        wanted = getattr(super(), "get_message_attributes", {})
        return {**wanted, "MessageAttributeNames": [".*"]}

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """End a worker whose start fails in the block.

        Args:
            what: The error's description.
        """
        try:
            yield
        except (ClientError, UndefinedQueueException) as error:
            if not self._heartbeat.leased.has_begun:
                self._heartbeat.refuse(UnusableQueues(what, str(error)))
            raise
        except ConfigurationError as error:
            if not self._heartbeat.leased.has_begun:
                self._heartbeat.refuse(error)
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
        heartbeat, url_of = self._heartbeat, self._kombu.url
        broker = self._kombu.broker()
        try:
            if not heartbeat.leased.has_begun:
                # All of them now, because the event loop polls the first one as soon as the worker
                # consumes from it.
                names = heartbeat.start_queues()
                heartbeat.check_names(self._kombu.is_listed)
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
        if queue is not None and not self._kombu.is_consumed(queue):
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
        if self._kombu.is_leased(queue):
            self.connection.listen(self.hub)
            self.feed.consume()
        else:
            super()._schedule_queue(queue)

    @property
    def has_unleased(self) -> bool:
        """Whether it consumes from a queue whose messages are not leased."""
        return not all(map(self._kombu.is_leased, self._kombu.queues()))

    def _get_bulk(self, queue: str, *args: Any, **kwargs: Any) -> None:
        """Poll a queue whose messages are not leased, without an event loop."""
        if self._kombu.is_leased(queue):
            raise Empty
        super()._get_bulk(queue, *args, **kwargs)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Delete the message, and free its slot."""
        if self._acks.ack(delivery_tag):
            self.qos.ack(delivery_tag)
        else:
            super().basic_ack(delivery_tag, multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Settle a rejected message, unless its request has done so, and free its slot."""
        self._acks.reject(delivery_tag, requeue=requeue)
        if self._acks.forget_settled(delivery_tag):
            self.qos.ack(delivery_tag)
        else:
            super().basic_reject(delivery_tag, requeue=requeue)

    def reject(self, delivery_tag: str, *, requeue: bool, failure: TaskFailure = UNKNOWN) -> None:
        """Release a message that must run again. Settle any other as kombu does.

        Can be called from any thread, and on a closed channel. `basic_reject` frees the prefetch
        slot.
        """
        self._acks.reject(delivery_tag, requeue=requeue, failure=failure)

    def release(self, delivery_tag: str, *, cause: str) -> None:
        """Make a message visible again, and free its slot."""
        self._acks.release(delivery_tag, cause=cause)

    def _restore(self, message: Any, *args: Any, **kwargs: Any) -> None:
        """Release an unsettled message of a closed consumer."""
        if not self._acks.restore(message.delivery_tag):
            super()._restore(message, *args, **kwargs)
