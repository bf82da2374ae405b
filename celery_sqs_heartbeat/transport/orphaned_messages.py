"""A safety net: gives up messages that nothing will settle any more.

A request settles its message when its job in the pool ends. If the request or the job disappears
while the message is still held, its lease would continue for as long as the worker lives.

Only messages that once had a request are given up. A message that still waits for its request, or
that another consumer step takes, is left alone.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.events import UNSETTLED
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.link.client import LinkedKeeper

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
        lease = watch.lease
        logger.error(
            "sqs-heartbeat: message %s of %s, task %s[%s], was not settled, and nothing will "
            "settle it any more: it %s",
            lease.message_id,
            lease.queue_url,
            lease.task,
            lease.task_id,
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
