"""The objects that the worker's step shares with the transport that kombu makes."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol
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


class LeasedRequestProtocol(Protocol):
    """A request whose message has a lease."""

    def has_started(self) -> bool:
        """Return whether the pool has reported that it runs the task."""

    def outlives_consumer(self) -> bool:
        """Return whether the pool runs the task, or will, although its consumer is closed."""

    def has_job(self) -> bool:
        """Return whether the pool has a job for the task."""

    def is_due_for_the_last_time(self) -> bool:
        """Return whether its message was received for the last time, and its task may start."""

    def is_fifo(self) -> bool:
        """Return whether its message is of a FIFO queue."""

    def withdraw(self) -> bool:
        """Prevent the task from starting. Return whether that was in time."""

    def is_held(self) -> bool:
        """Return whether its message is neither acked nor released yet."""

    def on_lost(self) -> str:
        """Return what to do with its task when the lease is lost."""

    def stop_lost_task(self, pool: Any) -> None:
        """Stop its task if it runs and the message is still not ours."""

    def give_up(self, error: Exception) -> object:
        """Release its message because the task can't be started, unless it may have started."""

    def release(self, cause: str) -> None:
        """Release the message."""


#: The number of messages remembered between their receive and their requests: enough for several
#: receives of ten messages from each queue of a worker.
_RECEIVED = 1_024


class Once:
    """Remembers what has been logged, for lines that must be logged only once.

    The subjects are few: they name queues, never anything a sender chooses.
    """

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def first_time(self, subject: str) -> bool:
        """Return True once for each subject."""
        is_new = subject not in self._subjects
        self._subjects.add(subject)
        return is_new


class FeedProtocol(Protocol):
    """The interface of a channel's feed that other parts use."""

    def take(self, messages: list[HandedOver]) -> None:
        """Take messages that were handed over for it."""

    def fill(self) -> None:
        """Receive what there is room for now."""

    def look(self) -> None:
        """Notice what has changed, and receive what there is room for."""

    def stop(self) -> None:
        """Receive no more."""


@dataclass(kw_only=True, repr=False)
class Heartbeat:
    """One worker's keeper, and everything the transport needs to pass messages to it.

    Attributes:
        clients: The clients with which the worker reads the queues' attributes.
        leases: The most messages the worker holds at once; 0 for no limit.
        hub: The worker's event loop, if it has one.
        has_processes: Whether its pool runs tasks in processes.
        feeds: Those of channels that are not closed, by number.
        turned_at: When the consumer's thread last took messages, or began to receive, in seconds of
            `clock.now`.
        arriving: The receipt handles of messages that were handed over and are not delivered yet.
        pool_size: Returns how many messages of queues the pool runs at once; infinity if they are
            no tasks.
        is_green: Whether the pool has greenlets. A full one blocks the consumer.
        in_pool: The requests that were given to the pool, by their messages' receipt handles: until
            their slots are free, or with greenlets until their tasks have ended.
        check_pool: Is called with the error of a task that could not be given to the pool, and ends
            the worker if its pool takes no task at all.
        start_queues: Returns the names of the queues with which the worker starts.
        check_names: Warns about settings for unknown queues. Its argument is a function that
            returns whether SQS has a queue of a name.
        refuse: Ends the worker because it can't use its queues, or its settings do not fit them.
            If it returns, as it does without a worker, the user of the channel gets the error.
        is_ending: Whether the worker is shutting down: it releases messages and must not receive
            more.
        requests: The requests made from leased messages, by their lease's key.
        received: The receipt handles of messages that went through the keeper, with any result.
        settled: The messages that were settled at the keeper before their channel learned of it:
            it has nothing left to do for them at SQS. Their number is limited, because an ack or a
            reject never reaches a channel that was lost.
        once: Remembers what must be logged only once.
        leased: The queues that are ready to be consumed from, and the terms of their leases.
        orphaned: Gives up messages whose request disappeared without settling them.
    """

    keeper: LinkedKeeper
    settings: Settings
    queues: QueueDirectory
    clients: ClientPool
    leases: int = 0
    hub: Any = None
    has_processes: bool = False
    feeds: dict[int, FeedProtocol] = field(default_factory=dict)
    turned_at: float = 0.0
    arriving: set[str] = field(default_factory=set, repr=False)
    pool_size: Callable[[Iterable[str]], float] = lambda queues: math.inf
    is_green: bool = False
    in_pool: WeakValueDictionary[str, LeasedRequestProtocol] = field(
        default_factory=WeakValueDictionary
    )
    check_pool: Callable[[Exception], object] = lambda error: None
    start_queues: Callable[[], Iterable[str]] = tuple
    check_names: Callable[[Callable[[str], bool]], object] = bool
    refuse: Callable[[SqsHeartbeatError], object] = bool
    is_ending: bool = False
    requests: WeakValueDictionary[tuple[str, str], LeasedRequestProtocol] = field(
        default_factory=WeakValueDictionary
    )
    received: RecentKeys[str] = field(default_factory=lambda: RecentKeys(_RECEIVED))
    settled: RecentKeys[str] = field(default_factory=RecentKeys)
    once: Once = field(default_factory=Once)
    leased: LeasedQueues = field(init=False)
    orphaned: OrphanedMessages = field(init=False)

    def __post_init__(self) -> None:
        self.leased = LeasedQueues(
            self.settings, self.queues, self.clients, self.keeper, self.leases
        )
        self.orphaned = OrphanedMessages(self.keeper)
        self.keeper.on_arrived = self._take
        self._channels = itertools.count(1)

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
