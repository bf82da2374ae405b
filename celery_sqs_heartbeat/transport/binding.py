"""The objects that the worker's step shares with the transport that kombu makes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.observe.polled import PolledQueues
from celery_sqs_heartbeat.receiving.group_waitlist import GroupWaitlist
from celery_sqs_heartbeat.receiving.receiver import Receiver
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.clients import ClientPool, poll_config
from celery_sqs_heartbeat.sqs.long_polls import Poll
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.orphaned_messages import OrphanedMessages
from celery_sqs_heartbeat.transport.reached_queues import ReachedQueues
from celery_sqs_heartbeat.transport.request import LeasedRequestProtocol
from celery_sqs_heartbeat.transport.terms import LeasedQueues, LeaseRules, QueueTerms

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
    """The interface of a channel's feed that other parts use.

    Attributes:
        receiver: Receives for it.
    """

    receiver: Receiver

    @property
    def is_over(self) -> bool:
        """Whether its channel was closed, and every poll was answered."""

    @property
    def polls(self) -> tuple[Poll, ...]:
        """The open polls."""

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
        clients: Learns how to reach each queue.
        poll_clients: Has the clients that make the polls.
        leases: The most messages the worker holds at once; 0 for no limit.
        concurrency: How many tasks the worker runs at once; 0 if not known.
        hub: The worker's event loop, if it has one.
        has_processes: Whether its pool runs tasks in processes.
        polled: Records how SQS answers the polls of each queue.
        feeds: Those of every channel that consumes, or still has an open poll.
        polling: Is held while the record of open polls changes. Signals are handled after that.
        note_poll: Is called with a queue's URL and the time when the last of its open polls ends,
            in seconds of `clock.now`; 0.0 if none is open.
        arriving: The receipt handles of messages that were handed over and are not delivered yet.
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
        terms: The terms of the leases on each queue.
        leased: The queues that are ready to be consumed from.
        rules: The settings that apply to each lease.
        orphaned: Gives up messages whose request disappeared without settling them.
        groups: The messages of FIFO queues that wait for another of their group.
    """

    keeper: LinkedKeeper
    settings: Settings
    queues: QueueDirectory
    clients: ReachedQueues
    poll_clients: ClientPool = field(default_factory=lambda: ClientPool(None, poll_config))
    leases: int = 0
    concurrency: int = 0
    hub: Any = None
    has_processes: bool = False
    polled: PolledQueues = field(default_factory=PolledQueues)
    feeds: list[FeedProtocol] = field(default_factory=list)
    polling: SignalSafeLock = field(default_factory=SignalSafeLock)
    note_poll: Callable[[str, float], object] = lambda url, ends_at: None
    arriving: set[str] = field(default_factory=set, repr=False)
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
    terms: QueueTerms = field(init=False)
    leased: LeasedQueues = field(init=False)
    rules: LeaseRules = field(init=False)
    orphaned: OrphanedMessages = field(init=False)
    groups: GroupWaitlist = field(init=False)

    def __post_init__(self) -> None:
        self.terms = QueueTerms(self.settings, self.queues, self.leases)
        self.leased = LeasedQueues(
            settings=self.settings,
            queues=self.queues,
            clients=self.clients,
            terms=self.terms,
            has_limit=bool(self.leases),
        )
        self.rules = LeaseRules(settings=self.settings, names=self.leased.names)
        self.orphaned = OrphanedMessages(self.keeper)
        self.groups = GroupWaitlist(keeper=self.keeper, limit=self.settings.fifo_waiting)

    def add_feed(self, feed: FeedProtocol) -> None:
        """Note the feed of a new channel. Those of closed channels are forgotten."""
        with self.polling:
            self.feeds = [*(each for each in self.feeds if not each.is_over), feed]

    @property
    def polls(self) -> list[Poll]:
        """The open polls of all channels."""
        return [poll for feed in self.feeds for poll in feed.polls]

    def look(self) -> None:
        """Notice what no event reports: another attribute of a queue, a keeper that is ready."""
        for feed in self.feeds:
            feed.look()

    def take_turns(self) -> None:
        """Have messages handed over that waited for another of their group."""
        if len(self.groups):
            for feed in self.feeds:
                feed.fill()

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
