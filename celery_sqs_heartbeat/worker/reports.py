"""What a worker and its keeper report to each other: lost leases, and whether the event loop turns.

Lost, expired and capped leases are sent as signals, and `sqs_heartbeat_on_lost` is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.concurrency.base import BasePool

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.threads import CallerThreads
from celery_sqs_heartbeat.leases.events import Event, loss_of
from celery_sqs_heartbeat.signals import lease_capped, lease_lost
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.requests import LeasedRequest

logger = get_logger(__name__)


class LostLeaseHandler:
    """Receives the keeper's events: sends signals about bad ends, and acts on them.

    Signals are sent on a separate thread, because handlers may be slow. Tasks are stopped on the
    worker's event loop. The keeper has already logged the events.

    Args:
        app: The app whose tasks are the senders of the signals.
        heartbeat: Has the requests.
    """

    def __init__(self, app: Celery, heartbeat: Heartbeat) -> None:
        self._app = app
        self._heartbeat = heartbeat
        # Not an executor, whose threads the interpreter joins when it exits: a user's handler that
        # hangs would delay the worker's exit. A single thread keeps the order.
        self._thread = CallerThreads(1, "sqs-heartbeat-signals")
        self._pool: Any = None
        self._call_soon: Callable[..., Any] | None = None

    def start(self, pool: Any, call_soon: Callable[..., Any]) -> None:
        """Set the means to stop a task.

        Args:
            pool: The worker's pool.
            call_soon: Calls a function on the worker's event loop.
        """
        self._pool, self._call_soon = pool, call_soon
        self._heartbeat.leased.can_stop_tasks = _stops_tasks(pool)
        if self._heartbeat.settings.may_terminate() and not self._heartbeat.leased.can_stop_tasks:
            logger.warning(
                "sqs-heartbeat: pool %s can't stop running tasks: "
                "sqs_heartbeat_on_lost='terminate' affects only tasks that have not started",
                type(pool).__module__.rpartition(".")[2],
            )

    def __call__(self, event: Event) -> None:
        """Receive an event from the keeper."""
        cause = loss_of(event)
        if cause is not None:
            self._thread.submit(lambda: self._tell(event, cause))

    def close(self) -> None:
        """End the thread after its submitted jobs, without waiting."""
        self._thread.close()

    def _tell(self, event: Event, cause: str) -> None:
        signal = lease_capped if cause == "capped" else lease_lost
        # Errors of handlers are logged by Celery.
        signal.send(
            sender=self._app.tasks.get(event.task) if event.task else None,
            message_id=event.message_id,
            queue=event.queue_url,
            task=event.task,
            task_id=event.task_id,
            cause=cause,
            held_for=event.held_for,
        )
        request = self._request(event)
        if request is not None and request.on_lost() == "terminate" and self._call_soon:
            self._call_soon(self._terminate, event)

    def _request(self, event: Event) -> LeasedRequest | None:
        return self._heartbeat.requests.get((event.queue_url, event.message_id))

    def _terminate(self, event: Event) -> None:
        request = self._request(event)
        if request is not None and self._heartbeat.leased.can_stop_tasks:
            request.stop_lost_task(self._pool)


def _stops_tasks(pool: Any) -> bool:
    terminate = getattr(pool.terminate_job, "__func__", None)
    return terminate is not BasePool.terminate_job


#: After how many seconds without an answer the event loop is asked again to show that it turns.
_ASK_AGAIN = 5.0
#: How long a worker without an event loop may wait for a free greenlet, in seconds.
_LONGEST_WAIT = 68.0


class LoopWatch:
    """Reports to a keeper, once a second, what it can't see itself."""

    def __init__(self, worker: Any, heartbeat: Heartbeat) -> None:
        self._worker = worker
        self._heartbeat, self._keeper = heartbeat, heartbeat.keeper
        self._pool: list[int] = []
        self._is_asked, self._asked_at = False, 0.0
        self._is_connected, self._has_ended = False, False
        self._turned_at = 0.0

    def report(self) -> None:
        """Ask the event loop for a turn, and report the pool's processes. The pool runs by now."""
        self._ask_loop()
        pool = _processes(self._worker.pool)
        if pool != self._pool:
            self._pool = pool
            self._keeper.order("pool", pool)

    def end(self) -> None:
        """Tell the keeper that the worker's event loop has ended, because the worker ends."""
        self._has_ended = True
        self._keeper.order("loop", None, False)

    def _ask_loop(self) -> None:
        """Ask the event loop to show that it turns, unless it has not yet answered.

        While the worker connects, no loop turns: that is no stall, which a restart would end.
        """
        now, consumer = self._keeper.now(), self._worker.consumer
        connection = consumer and consumer.connection
        is_open = bool(connection and connection.connected)
        if not is_open:
            if self._is_connected and not self._has_ended:
                self._is_connected = False
                self._keeper.order("connected", False)
                self._keeper.order("loop", None, False)
        # A question without an answer for long may have been lost with a connection.
        elif now - self._asked_at >= (_ASK_AGAIN if self._is_asked else 0):
            self._is_asked, self._asked_at = True, now
            consumer.call_soon(self._tick)
        if (turned_at := self._heartbeat.turned_at) > self._turned_at:
            self._turned_at = turned_at
            # A solo pool may run a task since its first poll: then the loop answers only after it.
            self._note_turn(is_open=is_open)

    def _tick(self) -> None:
        self._is_asked = False
        self._note_turn(is_open=True)

    def _note_turn(self, *, is_open: bool) -> None:
        if is_open and not (self._is_connected or self._has_ended):
            self._is_connected = True
            self._keeper.order("connected", True)
            self._keeper.order("loop", *_loop(self._worker))
        self._keeper.say("tick")


def _loop(worker: Any) -> tuple[float, bool]:
    """Return how long a worker's loop may wait for messages, and whether tasks run in it."""
    waits = _LONGEST_WAIT if worker.hub is None else 0.0
    return waits, type(worker.pool).__module__.endswith(".solo")


def _processes(pool: Any) -> list[int]:
    """Return the process ids of a pool, or [] if it has no processes."""
    if not getattr(pool, "uses_semaphore", False):
        return []
    processes = getattr(getattr(pool, "_pool", None), "_pool", None)
    return sorted(each.pid for each in processes or () if each.pid is not None)
