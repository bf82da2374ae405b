"""What the worker's step lends to the transport that kombu makes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet, WeakValueDictionary

from celery_sqs_heartbeat.common.wording import seconds
from celery_sqs_heartbeat.errors import ConfigurationError, SqsHeartbeatError
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.observe.polled import PolledQueues
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT, QueueAttributes
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.breakage import Breakage
from celery_sqs_heartbeat.transport.keeping import Keeper, KeptLease
from celery_sqs_heartbeat.transport.terms import QueueTerms
from celery_sqs_heartbeat.transport.unsettled import Unsettled

logger = logging.getLogger(__name__)

#: Messages remembered between their receive and their requests: several times the ten of a
#: receive, of as many queues as a worker may have.
_RECEIVED = 1_024


class LeasedRequest(Protocol):
    """What the transport and the step need of a Celery request.

    Attributes:
        failed_before_pool: Celery failed on it, and had not asked the pool to run it yet.
    """

    failed_before_pool: bool

    def has_started(self) -> bool:
        """Return whether the pool has said that it runs the task."""

    def outlives_consumer(self) -> bool:
        """Return whether the pool runs the task, or will, though its consumer is closed."""

    def is_held(self) -> bool:
        """Return whether its message is neither acked nor released yet."""

    def on_lost(self) -> str:
        """Return what becomes of its task when the lease is lost."""

    def stop_lost_task(self, pool: Any) -> None:
        """Stop its task, if it runs and the message is still not ours."""

    def give_back(self, cause: str) -> None:
        """Release the message."""


@dataclass(kw_only=True, repr=False)
class Heartbeat:
    """The keeper of one worker and all that is needed to hand it messages.

    Attributes:
        prepare_calls: Runs a job where calls to SQS are made.
        leases: The most messages the worker holds at once; 0 for no bound.
        hub: The worker's event loop, where it has one.
        terms: What the leases on each queue are kept by.
        polled: How its queues' polls are answered.
        open_polls: Polls without an answer so far, of every channel.
        http_client: kombu's client for them, where there is an event loop.
        breakage: Finds out whether the worker is broken.
        start_queues: Returns the names of the queues that the worker starts with.
        check_names: Warns of settings for unknown queues; is given a function that returns
            whether SQS has a queue of a name.
        refuse: Ends the worker, as it can't use its queues, or its settings do not fit them. Where
            it returns, as without a worker, the error goes to whoever uses the channel.
        is_ending: Whether the worker goes: it gives messages back, and is to receive no more.
        requests: The requests made of leased messages, by their lease's key.
        unsettled: Gives up messages whose request has gone without settling them.
    """

    keeper: Keeper
    settings: Settings
    queues: QueueDirectory
    clients: ClientPool
    prepare_calls: Callable[[Callable[[], object]], None]
    leases: int = 0
    hub: Any = None
    polled: PolledQueues = field(default_factory=PolledQueues)
    open_polls: WeakSet[Any] = field(default_factory=WeakSet)
    http_client: Any = None
    breakage: Breakage = field(default_factory=Breakage)
    start_queues: Callable[[], Iterable[str]] = tuple
    check_names: Callable[[Callable[[str], bool]], object] = bool
    refuse: Callable[[SqsHeartbeatError], object] = bool
    is_ending: bool = False
    requests: WeakValueDictionary[tuple[str, str], LeasedRequest] = field(
        default_factory=WeakValueDictionary
    )
    terms: QueueTerms = field(init=False)
    unsettled: Unsettled = field(init=False)
    _names: dict[str, str] = field(default_factory=dict)
    _first_urls: dict[str, str] = field(default_factory=dict)
    _lease_urls: dict[str, str] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    # Bounded: an ack or reject never gets to a channel that was lost.
    _settled: RecentKeys[str] = field(default_factory=RecentKeys)
    _received: RecentKeys[str] = field(default_factory=lambda: RecentKeys(_RECEIVED))

    def __post_init__(self) -> None:
        self.terms = QueueTerms(self.settings, self.queues, self.leases)
        self.unsettled = Unsettled(self.keeper)

    def check_queues(self, urls: Mapping[str, str], config: BrokerConfig) -> None:
        """Check the queues that a worker starts with. Blocks on SQS once per queue.

        Args:
            urls: The queues' URLs by name.

        Raises:
            ConfigurationError: The settings do not fit them; it lists the faults of all.
        """
        faults = []
        for queue, queue_url in urls.items():
            self._reach(queue, queue_url, config)
            faults += self.terms.faults(queue, queue_url)
        if faults:
            raise ConfigurationError(faults)

    def prepare(self, queue: str, queue_url: str, config: BrokerConfig) -> None:
        """Make a queue ready to be consumed from. Blocks on SQS once per queue.

        Raises:
            ConfigurationError: The settings do not fit the queue's visibility timeout, and
                the worker has not received anything yet.
        """
        self._names[queue_url] = queue
        rules = self.settings.for_queue(queue)
        self._reach(queue, queue_url, config)
        terms = self.terms.admit(queue, queue_url)
        attributes = self.queues.get(queue_url)
        lease_url = self._first_urls.setdefault(attributes.arn or queue_url, queue_url)
        self._lease_urls[queue_url] = lease_url
        self.clients.use(config, lease_url, terms.threshold, address=queue_url)
        # Made now, and where the calls are made: that takes a busy machine a second, which
        # the first call may not have.
        self.prepare_calls(lambda: self.clients(lease_url))
        logger.info(
            "sqs-heartbeat: messages of queue %s are kept: visibility timeout %d s (%s), "
            "extended when less than %s s are left, for %s s at most",
            queue,
            terms.visibility_timeout,
            _origin(rules.visibility_timeout, attributes),
            seconds(terms.threshold),
            seconds(terms.max_lease),
        )

        if not self.leases and self.first_time("no prefetch limit"):
            logger.warning(
                "sqs-heartbeat: worker_prefetch_multiplier=0 sets no limit to the messages that "
                "this worker takes, while others have nothing to do: it stops at %d, which is as "
                "many as it can keep extended; set worker_prefetch_multiplier to 1 to 4",
                self.terms.most_leases(),
            )

    def _reach(self, queue: str, queue_url: str, config: BrokerConfig) -> None:
        threshold = self.settings.for_queue(queue).terms(DEFAULT_VISIBILITY_TIMEOUT).threshold
        self.clients.use(config, queue_url, threshold)

    def is_full(self) -> bool:
        """Return whether a worker without a prefetch limit holds all that it can keep extended."""
        return not self.leases and len(self.keeper) >= self.terms.most_leases()

    def lease_url(self, queue_url: str) -> str:
        """Return the URL that leases on a queue's messages go by: the first it had.

        After a failover to another broker URL it has another. Its messages, and our leases
        on them, are the same, and what those still need is asked for at the new one.
        """
        return self._lease_urls.get(queue_url, queue_url)

    def asked_timeout(self, queue: str, queue_url: str) -> int | None:
        """Return the visibility timeout to send with a receive; see `QueueTerms.asked`.

        Where the queue's own is another now, calls are made in the haste that this takes.
        """
        self.terms.has_begun = True
        has_changed = self.terms.follow(queue, queue_url)
        timeout = self.terms.asked(queue, queue_url)
        if has_changed:
            lease_url = self.lease_url(queue_url)
            self.clients.hurry(lease_url, self.terms.of(queue, timeout).threshold)
            with suppress(RuntimeError):
                # Without a thread for it the first call makes the client.
                self.prepare_calls(lambda: self.clients(lease_url))
        return timeout

    def acks_inline(self, lease: KeptLease) -> bool:
        """Return whether the messages of the lease's queue are acked kombu's way."""
        return self.settings.for_queue(self._names[lease.queue_url]).ack == "inline"

    def ack(self, lease: KeptLease, delivery_tag: str) -> None:
        """Have an acked message deleted before the ack gets to its channel."""
        if not self.acks_inline(lease):
            self.keeper.done(delivery_tag)
            self.note_settled(delivery_tag)

    def note_received(self, delivery_tag: str) -> None:
        """Note that a message went through the keeper, whatever that made of it."""
        self._received.add(delivery_tag)

    def passed_by(self, delivery_tag: str, queue_url: str) -> str | None:
        """Return the queue of a message that is to be leased, but never got to the keeper.

        None for one that did, and for one of a queue that is not leased.
        """
        return None if delivery_tag in self._received else self._names.get(queue_url)

    def is_settled(self, delivery_tag: str) -> bool:
        """Return whether its channel has nothing left to do for a message at SQS."""
        return delivery_tag in self._settled or self.keeper.is_disowned(delivery_tag)

    def note_settled(self, delivery_tag: str) -> None:
        """Note that the keeper knows a message's end before its channel does."""
        self._settled.add(delivery_tag)

    def forget_settled(self, delivery_tag: str) -> None:
        """Note that the ack or reject of a message has got to its channel."""
        self._settled.discard(delivery_tag)

    def on_lost(self, lease: KeptLease) -> str:
        """Return what becomes of a task whose lease was lost: warn, revoke or terminate."""
        return self.settings.for_task(self._names[lease.queue_url], lease.task).on_lost or "warn"

    def release_delay(self, lease: KeptLease) -> float:
        """Return the configured release delay after the lease's task failed, in seconds.

        Raises:
            Exception: Whatever a configured function raised.
        """
        rules = self.settings.for_task(self._names[lease.queue_url], lease.task)
        return rules.delay_after(lease.receive_count)

    def first_time(self, subject: str) -> bool:
        """Return True once for each subject: for what is to be said once."""
        new = subject not in self._told
        self._told.add(subject)
        return new


def _origin(set_timeout: int | None, attributes: QueueAttributes) -> str:
    if set_timeout is not None:
        return "set"
    return "its own" if attributes.is_known else "assumed"


_bound: Heartbeat | None = None
_bound_pid = 0


def bind(heartbeat: Heartbeat | None) -> None:
    """Lend a heartbeat to every channel that kombu makes in this process from now on."""
    global _bound, _bound_pid
    _bound, _bound_pid = heartbeat, os.getpid()


def bound() -> Heartbeat | None:
    """Return the heartbeat of this process, or None. A forked child has none."""
    return _bound if _bound_pid == os.getpid() else None
