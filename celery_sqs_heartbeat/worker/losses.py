"""Handles expired, lost and capped leases: sends signals, applies `sqs_heartbeat_on_lost`."""

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
