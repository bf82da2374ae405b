"""The net beneath all that settles messages: gives up those that nothing will settle.

A message is settled by its request, as its job in the pool ends. When the request or the job
is gone and the message is still held, its lease would go on for as long as the worker lives.

Only a message that had a request once is given up. One that still waits for its request, or
that another consumer step takes, is none of the net's.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.events import UNSETTLED
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.transport.keeper_protocol import Keeper

logger = get_logger(__name__)

#: How often it looks, in seconds.
LOOK_SECONDS = 1.0


class Watch:
    """What is to settle one leased message: its request and, from its start, the pool's job.

    Nothing of it takes a lock: it is called by the garbage collector, too, on any thread and
    in the middle of anything.

    Attributes:
        is_acked: Its ack is on its way to the channel, where kombu itself deletes it.
    """

    def __init__(self, gone: deque[Watch], request: object, lease: Lease, message: Any) -> None:
        self.lease = lease
        self.tag = str(message.delivery_tag)
        self.channel = message.channel
        self.is_acked = False
        self._gone = gone
        self._request: weakref.ref[Any] | None = weakref.ref(request, self.end)
        self._job: weakref.ref[Any] | None = None

    def follow(self, job: object) -> None:
        """Have the message hang on its job in the pool, too."""
        self._job = weakref.ref(job, self.end)

    def end(self, *_: object) -> None:
        """Note that the message should be settled by now."""
        self._gone.append(self)

    def close(self) -> object:
        """Watch no more; return the request, if it is still there."""
        request = self._request() if self._request is not None else None
        # They refer to this object: else it would wait for the garbage collector.
        self._request = self._job = None
        return request


class OrphanedMessages:
    """Gives up each message whose request or job has gone without settling it.

    Args:
        keeper: Keeps the leases.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._watches: set[Watch] = set()
        self._gone: deque[Watch] = deque()
        self._is_closed = threading.Event()
        self._forget: Callable[[Any], object] = lambda request: None
        self._may_run_on = False

    def watch(self, request: object, lease: Lease, message: Any) -> Watch:
        """Begin to watch what is to settle a message: a request that was just made for it."""
        watch = Watch(self._gone, request, lease, message)
        self._watches.add(watch)
        return watch

    def attach(self, *, forget: Callable[[Any], object], may_run_on: bool) -> None:
        """Learn how the worker's pool and Celery treat what is given up. Do it before `start`.

        Args:
            forget: Has Celery forget a request whose message was given up.
            may_run_on: Whether a task may run on when the pool has forgotten its job, as one in
                a process may. Its message is then left to its visibility timeout, as a stock
                worker leaves it: released, a second run would begin beside the first. A
                thread or a greenlet that runs a task has its job, so there it is released.
        """
        self._forget, self._may_run_on = forget, may_run_on

    def start(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """Look now and then, for as long as the worker lives.

        Args:
            call_soon: Calls a function where messages are settled, on the worker's event loop.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        threading.Thread(
            target=self._look_now_and_then,
            args=(call_soon,),
            name="sqs-heartbeat-unsettled",
            daemon=True,
        ).start()

    def close(self) -> None:
        """Look no more, and release what is left: the pool is gone, and so are its tasks."""
        self._is_closed.set()
        self._may_run_on = False
        self.look()

    def look(self) -> None:
        """Give up what should be settled by now and is not."""
        while self._gone:
            watch = self._gone.popleft()
            if watch in self._watches:
                self._watches.discard(watch)
                request = watch.close()
                if self._is_unsettled(watch):
                    self._give_up(watch)
                    if request is not None:
                        self._forget(request)

    def _look_now_and_then(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        while not self._is_closed.wait(LOOK_SECONDS):
            # A call that is lost, with a connection, is repeated.
            if self._gone:
                try:
                    call_soon(self.look)
                except Exception:
                    logger.exception("sqs-heartbeat: the event loop could not be called")

    def _is_unsettled(self, watch: Watch) -> bool:
        lease = self._keeper.find(watch.tag)
        return (
            lease is watch.lease
            and lease.goal is Goal.HOLD
            and not watch.is_acked
            # Another request of the same lease settles it.
            and all(other.lease is not lease for other in list(self._watches))
        )

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
            # Else it would hold its prefetch slot for ever.
            watch.channel.qos.ack(watch.tag)
        else:
            watch.channel.basic_reject(watch.tag, requeue=True)
