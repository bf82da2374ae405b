"""The objects that the worker's step shares with the transport that kombu makes."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.events import NOT_DELIVERED
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.held_messages import HandedOver
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues
from celery_sqs_heartbeat.transport.orphaned_messages import OrphanedMessages


class Heartbeat:
    """One worker's keeper, and everything the transport needs to pass messages to it.

    Args:
        clients: The clients with which the worker reads the queues' attributes.
        leases: The most messages the worker holds at once; 0 for no limit.

    Attributes:
        hub: The worker's event loop, if it has one.
        has_processes: Whether its pool runs tasks in processes.
        is_green: Whether the pool has greenlets. A full one blocks the consumer.
        is_ending: Whether the worker is shutting down: it releases messages and must not receive
            more.
        feeds: Those of channels that are not closed, by number.
        turned_at: When the consumer's thread last took messages, or began to receive, in seconds of
            `clock.now`.
        arriving: The receipt handles of messages that were handed over and are not delivered yet.
        in_pool: The requests that were given to the pool, by their messages' receipt handles: until
            their slots are free, or with greenlets until their tasks have ended.
        requests: The requests made from leased messages, by their lease's key.
        settled: The messages that were settled at the keeper before their channel learned of it:
            it has nothing left to do for them at SQS. Their number is limited, because an ack or a
            reject never reaches a channel that was lost.
        leased: The queues that are ready to be consumed from, and the terms of their leases.
        orphaned: Gives up messages whose request disappeared without settling them.
    """

    def __init__(
        self,
        *,
        keeper: LinkedKeeper,
        settings: Settings,
        queues: QueueDirectory,
        clients: ClientPool,
        leases: int = 0,
    ) -> None:
        self.keeper, self.settings, self.queues = keeper, settings, queues
        self.hub: Any = None
        self.has_processes = self.is_green = self.is_ending = False
        # Feeds and requests know the heartbeat, so their types can't be named here.
        self.feeds: dict[int, Any] = {}
        self.turned_at = 0.0
        self.arriving: set[str] = set()
        self.in_pool: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self.requests: WeakValueDictionary[tuple[str, str], Any] = WeakValueDictionary()
        self.settled: RecentKeys[str] = RecentKeys()
        self._logged: set[str] = set()
        self.leased = LeasedQueues(settings, queues, clients, keeper, leases)
        self.orphaned = OrphanedMessages(keeper)
        self._channels = itertools.count(1)
        keeper.on_arrived = self._take

    def pool_size(self, queues: Iterable[str]) -> float:
        """Return how many messages of queues the pool runs at once; infinity if they are no tasks.

        This and the next methods are those of a worker. Without one, channels have no pool.
        """
        del queues
        return math.inf

    def start_queues(self) -> list[str]:
        """Return the names of the queues with which the worker starts."""
        return []

    def check_names(self, is_listed: Callable[[str], bool]) -> None:
        """Warn about settings for queues that are neither the worker's nor listed by SQS."""

    def refuse(self, error: SqsHeartbeatError) -> None:
        """End the worker because it can't use its queues, or its settings do not fit them.

        If this returns, the user of the channel gets the error.
        """

    def check_pool(self, error: Exception) -> None:
        """End the worker if its pool, which did not take a task, takes none at all."""

    def first_time(self, subject: str) -> bool:
        """Return True once for each subject, for lines that must be logged only once.

        The subjects are few: they name queues, never anything a sender chooses.
        """
        is_new = subject not in self._logged
        self._logged.add(subject)
        return is_new

    def new_channel(self) -> int:
        """Return the number of a new channel."""
        return next(self._channels)

    def note_turn(self) -> None:
        """Note that the consumer's thread runs."""
        self.turned_at = clock.now()

    def note_free(self, receipt_handle: str) -> None:
        """Note that a message's prefetch slot is free. The task may be of an earlier connection."""
        if not self.is_green:
            self.in_pool.pop(receipt_handle, None)
        self._fill()

    def note_run(self, receipt_handle: str) -> None:
        """Note that the pool has run a message's task, or does not take it."""
        if self.in_pool.pop(receipt_handle, None) is not None and self.is_green:
            # A message may have waited for its greenlet.
            self._fill()

    def _fill(self) -> None:
        for feed in tuple(self.feeds.values()):
            feed.fill()

    def look(self) -> None:
        """Notice what no event reports: another attribute of a queue, a call that was lost."""
        for feed in tuple(self.feeds.values()):
            feed.look()

    def _take(self, arrived: list[tuple[int, HandedOver]]) -> None:
        for channel, each in arrived:
            feed = self.feeds.get(channel)
            if feed is not None:
                feed.take([each])
            else:
                # It was closed meanwhile.
                self.keeper.release(each.handle, cause=NOT_DELIVERED)

    def is_settled(self, delivery_tag: str) -> bool:
        """Return whether a message's channel has nothing left to do for it at SQS."""
        return delivery_tag in self.settled or self.keeper.is_disowned(delivery_tag)


_bound: Heartbeat | None = None
_bound_pid = 0


def bind(heartbeat: Heartbeat | None) -> None:
    """Give a heartbeat to every channel that kombu makes in this process from now on."""
    global _bound, _bound_pid
    _bound, _bound_pid = heartbeat, os.getpid()


def bound() -> Heartbeat | None:
    """Return this process's heartbeat, or None. A forked child has none."""
    return _bound if _bound_pid == os.getpid() else None
