"""The objects that the worker's step shares with the transport that kombu makes.

One is a safety net: it gives up messages that nothing will settle any more. A request settles its
message when its job in the pool ends. If the request or the job disappears while the message is
still held, its lease would continue for as long as the worker lives. Only messages that once had a
request are given up. A message that still waits for its request, or that another consumer step
takes, is left alone.
"""

from __future__ import annotations

import itertools
import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.events import NOT_DELIVERED, UNSETTLED, named
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.leases.received_as import RecentKeys
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues

logger = get_logger(__name__)


class Watch:
    """Watches the objects that settle one message: its request and, once started, its pool job.

    No method takes a lock. The garbage collector calls them, too, on any thread and in the middle
    of anything.

    Attributes:
        is_settling: Whether its ack is on its way to the channel, where kombu itself deletes it, or
            its release waits for the death of a process.
    """

    def __init__(self, gone: deque[Watch], request: object, lease: Lease, message: Any) -> None:
        self.lease = lease
        self.tag = str(message.delivery_tag)
        self.channel = message.channel
        self.is_settling = False
        self._gone = gone
        self._request: weakref.ref[Any] | None = weakref.ref(request, self.end)
        self._job: weakref.ref[Any] | None = None

    def follow(self, job: object) -> None:
        """Watch the message's job in the pool, too."""
        self._job = weakref.ref(job, self.end)

    def end(self, *_: object) -> None:
        """Note that the message should be settled by now."""
        self._gone.append(self)

    def close(self) -> object:
        """Stop watching. Return the request, if it still exists."""
        request = self._request() if self._request is not None else None
        # The references point back to this object. Without them, it is freed at once, and does
        # not wait for the garbage collector.
        self._request = self._job = None
        return request


class OrphanedMessages:
    """Gives up each message whose request or job disappeared without settling it.

    Args:
        keeper: Keeps the leases.
    """

    def __init__(self, keeper: LinkedKeeper) -> None:
        self._keeper = keeper
        self._watches: set[Watch] = set()
        self._gone: deque[Watch] = deque()
        self._forget: Callable[[Any], object] = lambda request: None
        self._may_run_on = False

    def watch(self, request: object, lease: Lease, message: Any) -> Watch:
        """Begin to watch a message and the request that was just made for it."""
        watch = Watch(self._gone, request, lease, message)
        self._watches.add(watch)
        return watch

    def attach(self, *, forget: Callable[[Any], object], may_run_on: bool) -> None:
        """Learn how the worker's pool and Celery treat messages that are given up.

        Args:
            forget: Makes Celery forget a request whose message was given up.
            may_run_on: Whether a task may still run after the pool has forgotten its job. In a
                pool process it may. Then the message is left to its visibility timeout, as a
                stock worker leaves it: after a release, a second run would begin beside the first.
                A thread or greenlet keeps the job while it runs the task, so there the message is
                released.
        """
        self._forget, self._may_run_on = forget, may_run_on

    def look_on(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """Look where messages are settled, if any should be settled by now.

        Call this regularly. A lost connection may lose the call.

        Args:
            call_soon: Calls a function on the worker's event loop.
        """
        if self._gone:
            call_soon(self.look)

    def close(self) -> None:
        """Release what is left: the pool and its tasks have ended."""
        self._may_run_on = False
        self.look()

    def look(self) -> None:
        """Give up each message that should be settled by now and is not."""
        while self._gone:
            watch = self._gone.popleft()
            if watch in self._watches:
                self._watches.discard(watch)
                request = watch.close()
                if self._settle(watch) and request is not None:
                    self._forget(request)

    def _settle(self, watch: Watch) -> bool:
        """Give up a message that nothing settles, or free the slot of one that is no longer ours.

        Return whether there was anything to do.
        """
        lease = self._keeper.find(watch.tag)
        is_held = lease is watch.lease and watch.lease.goal is Goal.HOLD
        is_lost = lease is None and watch.channel.takes_slot(watch.tag)
        if watch.is_settling or not (is_held or is_lost):
            return False
        if any(other.lease is watch.lease for other in list(self._watches)):
            # Another request of the same lease will settle it.
            return False
        if is_held:
            self._give_up(watch)
        else:
            watch.channel.qos.ack(watch.tag)
        return True

    def _give_up(self, watch: Watch) -> None:
        logger.error(
            "sqs-heartbeat: %s, was not settled, and nothing will settle it any more: it %s",
            named(watch.lease),
            "becomes visible again when its visibility timeout ends"
            if self._may_run_on
            else "is released, like that of a failed task",
        )
        if self._may_run_on:
            self._keeper.let_expire(watch.tag, UNSETTLED)
            # Otherwise it would keep its prefetch slot indefinitely.
            watch.channel.qos.ack(watch.tag)
        else:
            watch.channel.basic_reject(watch.tag, requeue=True)


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

    def _take(self, arrived: list[tuple[int, Arrived]]) -> None:
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
