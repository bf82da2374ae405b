"""Prepares a channel when it is made, and when its queues are first used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import ClientError
from kombu.asynchronous import get_event_loop, set_event_loop
from kombu.transport.SQS import UndefinedQueueException

from celery_sqs_heartbeat.errors import ConfigurationError, UnusableQueues
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel


class Starting:
    """Starts a channel. If a worker's start fails, ends the worker without a traceback."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat

    def enter_event_loop(self) -> None:
        """Make the worker's event loop the current one again, if there is none.

        Since kombu 5.7 there is none after a connection was lost (`Hub.reset`), and a channel made
        without an event loop never polls. A stock worker continues, and receives nothing.
        """
        if self._heartbeat.hub and get_event_loop() is None:
            set_event_loop(self._heartbeat.hub)

    @contextmanager
    def refusing(self, what: str) -> Iterator[None]:
        """End a worker whose start fails in the block.

        Args:
            what: The error's description.
        """
        try:
            yield
        except (ClientError, UndefinedQueueException) as error:
            if not self._heartbeat.terms.has_begun:
                self._heartbeat.refuse(UnusableQueues(what, str(error)))
            raise
        except ConfigurationError as error:
            if not self._heartbeat.terms.has_begun:
                self._heartbeat.refuse(error)
            raise

    def prepare(self, queue: str) -> None:
        """Make a queue ready to be consumed from. Before the first one, check all of them.

        Raises:
            ConfigurationError: The settings do not fit a queue.
        """
        heartbeat, url_of = self._heartbeat, self._kombu.url
        broker = self._kombu.broker()
        try:
            if not heartbeat.terms.has_begun:
                # All of them now, because the event loop polls the first one as soon as the worker
                # consumes from it.
                names = heartbeat.start_queues()
                heartbeat.check_names(self._kombu.is_listed)
                heartbeat.leased.check({name: url_of(name) for name in names}, broker)
            heartbeat.leased.prepare(queue, url_of(queue), broker)
        except ConfigurationError as error:
            heartbeat.refuse(error)
            raise
