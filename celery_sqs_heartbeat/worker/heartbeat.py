"""The heartbeat of one worker, from its start to its end."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from celery import signals
from celery.platforms import EX_FAILURE
from celery.worker import state
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.current.sharing import unshare_table
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.link.attendant import NoKeeper
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.settings import PREFIX, Settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.options import try_session_function
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.worker.children import note_worker
from celery_sqs_heartbeat.worker.losses import LostLeaseHandler
from celery_sqs_heartbeat.worker.pools import (
    count_requests,
    follow_jobs,
    guard_run,
    keep_running_jobs_on_flush,
    keep_undecodable,
    make_shutdown_reentrant,
    pool_size,
    scaling_fault,
    takes_jobs,
)
from celery_sqs_heartbeat.worker.requests import use_leased_requests
from celery_sqs_heartbeat.worker.retrying import release_retries
from celery_sqs_heartbeat.worker.settings import (
    WorkerConfigurationError,
    log_critical,
    names_to_lease,
    read_worker_settings,
    refuse_start,
    warn_of_unknown_queues,
)
from celery_sqs_heartbeat.worker.shutdown import (
    end_after_cold_shutdown,
    end_polls,
    end_worker,
    let_handlers_call_soon,
    put_off_signals,
    release_all,
    release_before_soft_shutdown,
    release_unstarted,
    stop_after_last_receives,
)
from celery_sqs_heartbeat.worker.starts import gathers_requests
from celery_sqs_heartbeat.worker.worker_keeper import WorkerKeeper

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.otel import OtelObserver

logger = logging.getLogger(__name__)


class WorkerHeartbeat:
    """Binds a keeper to the transport, and ends it when the worker ends.

    The worker ends at `worker_shutdown`, after a cold shutdown, or with its process.
    """

    def __init__(self, parent: Any) -> None:
        concurrency = parent.max_concurrency or parent.concurrency
        leases = concurrency * parent.prefetch_multiplier
        note_worker()
        self._has_ended = False
        self._parent = parent
        settings = read_worker_settings(parent.app, leases)
        if settings.otel:
            with _as_faults_of_the_worker():
                _require_otel()
        self._linked = WorkerKeeper(
            settings, leases, concurrency, name=parent.hostname, on_event=self._take_event
        )
        self._keeper = self._linked.keeper
        self._heartbeat = _new_heartbeat(settings, leases, self._keeper)
        self._otel = _new_otel(self._heartbeat) if settings.otel else None
        self._lost_leases = LostLeaseHandler(parent.app, self._heartbeat)
        bind(self._heartbeat)
        use_leased_requests(parent.app)

    def create(self, parent: Any) -> None:
        """Start the keeper, and guard how the worker gives tasks to its pool."""
        self._linked.begin()
        self._heartbeat.pool_size = partial(pool_size, parent)
        self._heartbeat.is_green = getattr(parent.pool, "is_green", False)
        guard_run(parent.pool)
        if any(map(gathers_requests, parent.app.tasks.values())):
            # Loaded by its name and only for such tasks, because `contrib` stands above the worker.
            guard_batches = symbol_by_name("celery_sqs_heartbeat.contrib.batches:guard_batches")
            guard_batches(parent.app, parent.pool)
        make_shutdown_reentrant(parent.pool)

    def start(self, parent: Any) -> None:
        """Connect the worker to its keeper, and have the keeper end with the worker."""
        if fault := scaling_fault(parent):
            refuse_start(parent.app, WorkerConfigurationError([fault]))
        self._restore_retries = release_retries()
        self._heartbeat.hub = parent.hub
        self._heartbeat.has_processes = parent.pool.uses_semaphore
        self._heartbeat.start_queues = partial(names_to_lease, parent.app)
        self._heartbeat.check_names = partial(
            warn_of_unknown_queues, parent.app, self._heartbeat.settings.queues
        )
        self._heartbeat.refuse = partial(refuse_start, parent.app)
        self._heartbeat.check_pool = partial(self._check_pool, parent)
        if self._otel is not None:
            journal = self._linked.journal_stats if self._heartbeat.settings.journal else None
            self._otel.watch(self._linked, journal, self._linked.polled)
        heartbeat = self._heartbeat
        self._linked.start(parent, lambda: heartbeat.turned_at, look=heartbeat.look)
        self._lost_leases.start(parent.pool, lambda *call: parent.consumer.call_soon(*call))
        orphaned = self._heartbeat.orphaned
        orphaned.attach(forget=state.task_ready, may_run_on=parent.pool.uses_semaphore)
        orphaned.start(lambda call: parent.consumer.call_soon(call))
        count_requests(parent.consumer, self._heartbeat)
        follow_jobs(parent.pool)
        keep_undecodable(parent.consumer, self._keeper)
        keep_running_jobs_on_flush(parent.pool)
        release_before_soft_shutdown(parent, self._keeper, lambda: self.close(parent))
        stop_after_last_receives(self._heartbeat, parent)
        put_off_signals(self._keeper)
        let_handlers_call_soon(parent.hub)
        signals.worker_shutdown.connect(self._end, sender=parent, weak=False)
        end_after_cold_shutdown(parent, self._end)
        atexit.register(self._end)
        try:
            self._linked.wait_until_ready(partial(self._end_without_keeper, parent.app))
        except NoKeeper as error:
            refuse_start(parent.app, error)

    def close(self, parent: Any) -> None:
        """Release the messages of tasks that the pool has not started and will not run."""
        self._linked.unwatch_loop()
        end_polls(self._heartbeat)
        release_unstarted(self._heartbeat, parent.pool)

    def _take_event(self, event: Event) -> None:
        self._lost_leases(event)
        if self._otel is not None:
            self._otel(event)

    def _check_pool(self, parent: Any, error: Exception) -> None:
        """End the worker if its pool takes no jobs."""
        if takes_jobs(parent.pool):
            return
        logger.critical(
            "sqs-heartbeat: the pool takes no tasks: the worker is broken (%s: %s). It releases "
            "the messages it has not started, and exits",
            type(error).__name__,
            error,
        )
        end_polls(self._heartbeat)
        end_worker(parent.hub, error)

    def _end_without_keeper(self, app: Any, error: NoKeeper) -> None:
        """End the worker, which has no keeper. Until then, a thread of it is the keeper."""
        end_polls(self._heartbeat)
        log_critical(app, error)
        state.should_stop = EX_FAILURE

    def _end(self, **_: Any) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        atexit.unregister(self._end)
        signals.worker_shutdown.disconnect(self._end, sender=self._parent)
        end_polls(self._heartbeat)
        release_all(self._heartbeat)
        self._heartbeat.orphaned.close()
        self._linked.stop(self._heartbeat.settings.flush_timeout)
        self._lost_leases.close()
        self._restore_retries()
        bind(None)
        unshare_table()


@contextmanager
def _as_faults_of_the_worker() -> Iterator[None]:
    """Turn a wrong setting into an error that ends the worker with one clear line."""
    try:
        yield
    except ConfigurationError as error:
        raise WorkerConfigurationError(error.faults) from None


def _new_heartbeat(settings: Settings, leases: int, keeper: LinkedKeeper) -> Heartbeat:
    with _as_faults_of_the_worker():
        new_session = try_session_function(settings.session) if settings.session else None
    clients = ClientPool(new_session)
    return Heartbeat(
        keeper=keeper,
        settings=settings,
        queues=QueueDirectory(
            BotoSqs(clients, clients.address).queue_attributes,
            lambda job: threading.Thread(
                target=job, name="sqs-heartbeat-queues", daemon=True
            ).start(),
        ),
        clients=clients,
        leases=leases,
    )


def _require_otel() -> None:
    """Check that OpenTelemetry is installed.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    if find_spec("opentelemetry") is None:
        raise ConfigurationError(
            [
                f"{PREFIX}otel=True: opentelemetry is not installed: install "
                "celery-sqs-heartbeat[otel], or remove the setting"
            ]
        )


def _new_otel(heartbeat: Heartbeat) -> OtelObserver:
    """Return an observer that links the spans of a worker's messages to their senders' spans.

    It runs in the worker's process, where the user sets up its exporters.
    """
    from celery_sqs_heartbeat.observe.otel import OtelObserver

    def traceparent_of(event: Event) -> str | None:
        request: Any = heartbeat.requests.get((event.queue_url, event.message_id))
        headers = request.message.headers if request is not None else None
        return headers.get("traceparent") if isinstance(headers, dict) else None

    return OtelObserver(traceparent_of)
