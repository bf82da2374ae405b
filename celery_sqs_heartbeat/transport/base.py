"""What the receiving and the settling side of a leased channel share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError
from kombu.asynchronous import get_event_loop, set_event_loop
from kombu.transport import SQS
from kombu.transport.SQS import UndefinedQueueException

from celery_sqs_heartbeat.errors import UnusableQueues
from celery_sqs_heartbeat.transport.binding import Heartbeat, bound
from celery_sqs_heartbeat.transport.keeping import KeptLease
from celery_sqs_heartbeat.transport.poll import Poll

logger = logging.getLogger(__name__)

#: Unconfirmed deletes and releases at which consuming pauses, so that an outage of
#: SQS's deletes can't pile up work without bound.
MAX_ENDING = 1_000


class QoS(SQS.QoS):
    """Counts prefetched messages as kombu does, and tells when there is room again."""

    def can_consume(self) -> bool:
        """Return whether another message may be received."""
        if not super().can_consume() or self.channel.is_backed_up():
            return False
        heartbeat = self.channel._heartbeat
        # One without a prefetch limit holds no more than it can keep extended.
        return (
            heartbeat is None
            or bool(heartbeat.leases)
            or len(heartbeat.keeper) < heartbeat.terms.most_leases()
        )

    def ack(self, delivery_tag: str) -> None:
        """Free the message's prefetch slot, and have queues that wait for one polled."""
        super().ack(delivery_tag)
        self.channel.poll_waiting_queues()


class LeasedChannel(SQS.Channel):
    """An SQS channel with the heartbeat that was bound when it was made, if any."""

    QoS = QoS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._heartbeat: Heartbeat | None = bound()
        # What each is to call with the number of messages that it brought.
        self._polls: dict[Poll, Any] = {}
        self._waiting_queues: dict[str, Any] = {}
        self._poll_errors: dict[str, str | None] = {}
        self._is_backed_up = False
        self._enter_event_loop()
        super().__init__(*args, **kwargs)

    def _update_queue_cache(self, queue_name_prefix: str) -> None:
        """Have SQS list the queues."""
        with self._starting("SQS does not list the queues"):
            super()._update_queue_cache(queue_name_prefix)

    def _new_queue(self, queue: str, **kwargs: Any) -> Any:
        """Return a queue's URL; create the queue if there is none."""
        with self._starting(f"queue {queue!r} can't be used"):
            return super()._new_queue(queue, **kwargs)

    def _size(self, queue: str) -> Any:
        """Return how many messages are in a queue, which kombu asks for as it declares one.

        Nothing depends on it, so a missing permission does not end the worker.
        """
        try:
            return super()._size(queue)
        except ClientError:
            if self._heartbeat is None:
                raise
            return 0

    @contextmanager
    def _starting(self, what: str) -> Iterator[None]:
        """End a worker whose start fails here, without a traceback."""
        try:
            yield
        except (ClientError, UndefinedQueueException) as error:
            heartbeat = self._heartbeat
            if heartbeat is not None and not heartbeat.terms.has_begun:
                heartbeat.refuse(UnusableQueues(what, str(error)))
            raise

    def _enter_event_loop(self) -> None:
        """Make the worker's event loop the current one again, where none is.

        Since kombu 5.7 it is not after a connection was lost (`Hub.reset`), and a channel
        made without one never polls: a stock worker goes on, and receives nothing.
        """
        if self._heartbeat is not None and self._heartbeat.hub and get_event_loop() is None:
            set_event_loop(self._heartbeat.hub)

    def _is_ending(self) -> bool:
        """Return whether the worker is ending: what comes goes back, and nothing is asked for."""
        return self._heartbeat is not None and self._heartbeat.is_ending

    def is_backed_up(self) -> bool:
        """Return whether more deletes and releases wait than is healthy."""
        ending = self._heartbeat.keeper.ending if self._heartbeat is not None else 0
        was_backed_up, self._is_backed_up = self._is_backed_up, ending >= MAX_ENDING
        if self._is_backed_up is not was_backed_up:
            logger.warning(
                "sqs-heartbeat: %d deletes and releases are not confirmed: consuming %s",
                ending,
                "goes on" if was_backed_up else "pauses until SQS takes them",
            )
        return self._is_backed_up

    def _find(self, delivery_tag: str) -> tuple[Heartbeat | None, KeptLease | None]:
        heartbeat = self._heartbeat
        return heartbeat, heartbeat.keeper.find(delivery_tag) if heartbeat is not None else None

    def _release(self, delivery_tag: str) -> None:
        assert self._heartbeat is not None
        self._heartbeat.keeper.release(delivery_tag, cause="not delivered")
