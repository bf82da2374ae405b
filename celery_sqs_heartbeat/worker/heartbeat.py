"""The heartbeat of one worker, from its start to its end."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import signals
from celery.worker import state

from celery_sqs_heartbeat.current.sharing import share_board, unshare_board
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.keeper.callers import CallerThreads
from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.keeper.keeper import LeaseKeeper
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.calls import MAX_CALLS
from celery_sqs_heartbeat.observe.observers import Observer, Observers
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.transport.ending import LastPolls
from celery_sqs_heartbeat.worker.batches import guard_batches
from celery_sqs_heartbeat.worker.broken import end_worker
from celery_sqs_heartbeat.worker.ending import (
    end_polls,
    flush_time_left,
    release_all,
    release_unstarted,
)
from celery_sqs_heartbeat.worker.forking import forks_pool
from celery_sqs_heartbeat.worker.guards import follow_jobs, guard_run
from celery_sqs_heartbeat.worker.handlers import (
    let_handlers_call_soon,
    put_off_signals,
    release_before_soft_shutdown,
)
from celery_sqs_heartbeat.worker.losses import Losses
from celery_sqs_heartbeat.worker.operating import Operating
from celery_sqs_heartbeat.worker.pools import let_signals_stop, remember_running_jobs
from celery_sqs_heartbeat.worker.requests import use_leased_requests
from celery_sqs_heartbeat.worker.settings import (
    WorkerConfigurationError,
    names_to_lease,
    read_worker_settings,
    refuse_start,
    warn_of_unknown_queues,
)


class WorkerHeartbeat:
    """Binds a keeper to the transport, and ends it when the worker is through.

    That is at `worker_shutdown`, or at the end of the process.
    """

    def __init__(self, parent: Any) -> None:
        leases = (parent.max_concurrency or parent.concurrency) * parent.prefetch_multiplier
        self._losses = Losses(parent.app)
        self._last_polls: LastPolls | None = None
        settings = read_worker_settings(parent.app, leases)
        self._operating = _new_operating(settings)
        board = share_board(leases, in_file=not forks_pool(parent))
        self._keeper, self._heartbeat = _new_heartbeat(
            settings,
            leases,
            observer=Observers(self._losses, *self._operating.observers),
            on_late=self._operating.note_late,
            board=board,
        )
        self._losses.attach(self._heartbeat)
        bind(self._heartbeat)
        use_leased_requests(parent.app)

    def create(self, parent: Any) -> None:
        """Guard how the worker gives tasks to its pool, which is made by now."""
        guard_run(parent.pool)
        guard_batches(parent.app, parent.pool)
        let_signals_stop(parent.pool)

    def start(self, parent: Any) -> None:
        """Start the keeper and have it ended with the worker."""
        self._heartbeat.hub = parent.hub
        self._heartbeat.start_queues = partial(names_to_lease, parent.app)
        self._heartbeat.check_names = partial(
            warn_of_unknown_queues, parent.app, self._heartbeat.settings.queues
        )
        self._heartbeat.refuse = partial(refuse_start, parent.app)
        self._heartbeat.breakage.end = partial(self._end_broken, parent)
        self._operating.start(self._heartbeat, self._keeper, parent)
        self._keeper.start()
        self._losses.start(parent.pool, lambda *call: parent.consumer.call_soon(*call))
        unsettled = self._heartbeat.unsettled
        unsettled.attach(forget=state.task_ready, may_run_on=parent.pool.uses_semaphore)
        unsettled.start(lambda call: parent.consumer.call_soon(call))
        follow_jobs(parent.pool)
        remember_running_jobs(parent.pool)
        release_before_soft_shutdown(
            parent, self._keeper, lambda: self._release_unstarted(parent.pool)
        )
        put_off_signals(self._keeper)
        let_handlers_call_soon(parent.hub)
        signals.worker_shutdown.connect(self._end, sender=parent, weak=False)
        # A cold shutdown sends no signal.
        atexit.register(self._end)

    def close(self, parent: Any) -> None:
        """Release what the pool has not begun and will not run any more."""
        self._release_unstarted(parent.pool)

    def _release_unstarted(self, pool: Any) -> None:
        self._end_polls()
        release_unstarted(self._heartbeat, pool)

    def _end_broken(self, parent: Any, error: Exception) -> None:
        """Receive no more, and end a broken worker."""
        self._end_polls()
        end_worker(parent.hub, error)

    def _end_polls(self) -> LastPolls:
        if self._last_polls is None:
            self._last_polls = end_polls(self._heartbeat)
        return self._last_polls

    def _end(self, **_: Any) -> None:
        atexit.unregister(self._end)
        last_polls = self._end_polls()
        release_all(self._heartbeat)
        began = time.monotonic()
        last_polls.wait()
        self._heartbeat.unsettled.close()
        waited = time.monotonic() - began
        self._keeper.stop(flush_time_left(self._heartbeat.settings.flush_timeout, waited))
        self._operating.close()
        self._losses.close()
        bind(None)
        unshare_board()


def _new_operating(settings: Settings) -> Operating:
    try:
        return Operating(settings)
    except ConfigurationError as error:
        raise WorkerConfigurationError(error.faults) from None


def _new_heartbeat(
    settings: Settings,
    leases: int,
    *,
    observer: Observer,
    on_late: Callable[[float], None],
    board: Board | None,
) -> tuple[LeaseKeeper, Heartbeat]:
    clients = ClientPool()
    sqs = BotoSqs(clients, clients.address)
    dispatcher = ThreadDispatcher(sqs, MAX_CALLS)
    helpers = CallerThreads(1, "sqs-heartbeat-queues")
    keeper = LeaseKeeper(
        sqs,
        interval=settings.longest_sleep(),
        observer=observer,
        on_late=on_late,
        board=board,
        dispatcher=dispatcher,
    )
    return keeper, Heartbeat(
        keeper=keeper,
        settings=settings,
        queues=QueueDirectory(sqs.queue_attributes, helpers.submit),
        clients=clients,
        prepare_calls=dispatcher.prepare,
        leases=leases,
    )
