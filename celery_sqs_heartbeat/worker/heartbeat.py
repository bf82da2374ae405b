"""The heartbeat of one worker, from its start to its end."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

from celery import signals
from celery.platforms import EX_FAILURE
from celery.worker import state
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.common.journal_facts import Identity, JournalStats, WorkerInfo
from celery_sqs_heartbeat.current.sharing import share_table, shared_descriptor, unshare_table
from celery_sqs_heartbeat.errors import ConfigurationError, SqsHeartbeatError
from celery_sqs_heartbeat.leases.events import Event, KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseView
from celery_sqs_heartbeat.link.attendant import Attendant, NoKeeper
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import Hello
from celery_sqs_heartbeat.observe.watched import PolledQueue
from celery_sqs_heartbeat.settings import PREFIX, Settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.options import try_session_function
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.worker import pools, shutdown
from celery_sqs_heartbeat.worker.reports import LoopWatch, LostLeaseHandler
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
from celery_sqs_heartbeat.worker.starts import gathers_requests
from celery_sqs_heartbeat.worker.versions import running_versions

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.otel import OtelObserver

logger = logging.getLogger(__name__)

#: How often a worker that starts checks whether its keeper is ready, in seconds.
_LOOK_SECONDS = 0.02


class WorkerHeartbeat(Heartbeat):
    """Binds a keeper to the transport, and ends it when the worker ends.

    The worker ends at `worker_shutdown`, after a cold shutdown, or with its process.

    Raises:
        WorkerConfigurationError: Settings are wrong.
        SqsHeartbeatError: The system has no memory to share.
    """

    def __init__(self, parent: Any) -> None:
        concurrency = parent.max_concurrency or parent.concurrency
        leases = concurrency * parent.prefetch_multiplier
        self._has_ended = False
        self._parent = parent
        settings = read_worker_settings(parent.app, leases)
        if settings.otel and find_spec("opentelemetry") is None:
            raise WorkerConfigurationError(
                [
                    f"{PREFIX}otel=True: opentelemetry is not installed: install "
                    "celery-sqs-heartbeat[otel], or remove the setting"
                ]
            )
        try:
            new_session = try_session_function(settings.session) if settings.session else None
        except ConfigurationError as error:
            raise WorkerConfigurationError(error.faults) from None
        table = share_table(leases + settings.fifo_waiting if leases else 0)
        ours, self._theirs = delivery_sockets()
        clients = ClientPool(new_session)
        super().__init__(
            keeper=LinkedKeeper(HeldMessages(table), Inlet(ours.detach())),
            settings=settings,
            queues=QueueDirectory(BotoSqs(clients, address=clients.address).queue_attributes, _run),
            clients=clients,
            leases=leases,
        )
        self._attendant = Attendant(
            keeper=self.keeper,
            hello=Hello(
                pid=os.getpid(),
                interval=settings.longest_sleep(),
                journal=settings.journal,
                identity=asdict(Identity.here(time.time_ns() // 1000)),
                status=settings.status,
                token=settings.status_token,
                name=parent.hostname,
                wants_all=settings.otel,
                began_at=self.keeper.now(),
                session=settings.session,
                most_waiting=settings.fifo_waiting,
                concurrency=concurrency,
            ),
            table=table,
            descriptors=(self._theirs.fileno(), shared_descriptor()),
            on_event=self._take_event,
            every_second=self._report,
            give_up_after=settings.keeper_timeout,
        )
        self._loop = LoopWatch(parent, self)
        self._otel = self._new_otel() if settings.otel else None
        self._lost_leases = LostLeaseHandler(parent.app, self)
        bind(self)
        use_leased_requests(parent.app)

    def create(self, parent: Any) -> None:
        """Start the keeper, and guard how the worker gives tasks to its pool."""
        # Before the keeper serves its page: a new worker must not look ready.
        self.keeper.order("connected", False)
        # The keeper's process gets ready while the pool starts.
        self._attendant.begin()
        self.is_green = getattr(parent.pool, "is_green", False)
        pools.guard_run(parent.pool)
        if any(map(gathers_requests, parent.app.tasks.values())):
            # Loaded by its name and only for such tasks, because `contrib` stands above the worker.
            guard_batches = symbol_by_name("celery_sqs_heartbeat.contrib.batches:guard_batches")
            guard_batches(parent.app, parent.pool)
        pools.make_shutdown_reentrant(parent.pool)

    def start(self, parent: Any) -> None:
        """Connect the worker to its keeper, and have the keeper end with the worker."""
        if fault := pools.scaling_fault(parent):
            refuse_start(parent.app, WorkerConfigurationError([fault]))
        self._restore_retries = release_retries()
        self.hub = parent.hub
        self.has_processes = parent.pool.uses_semaphore
        self.keeper.order("worker", asdict(describe_worker(parent, self.settings)))
        self.orphaned.attach(forget=state.task_ready, may_run_on=self.has_processes)
        self._lost_leases.start(parent.pool, self._call_soon)
        self._report()
        self._attendant.start()
        pools.count_requests(parent.consumer, self)
        pools.follow_jobs(parent.pool)
        pools.keep_undecodable(parent.consumer, self.keeper)
        pools.keep_running_jobs_on_flush(parent.pool)
        shutdown.release_before_soft_shutdown(parent, self.keeper, lambda: self.close(parent))
        shutdown.stop_after_last_receives(self, parent)
        shutdown.put_off_signals(self.keeper)
        shutdown.let_handlers_call_soon(parent.hub)
        signals.worker_shutdown.connect(self._end, sender=parent, weak=False)
        shutdown.end_after_cold_shutdown(parent, self._end)
        atexit.register(self._end)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """Wait for the first keeper's first tick.

        Raises:
            WorkerShutdown: The worker is stopped meanwhile, or there is no keeper.
        """
        attendant = self._attendant
        attendant.on_given_up = self._end_without_keeper
        while not attendant.is_ready:
            if attendant.error is not None:
                self.refuse(attendant.error)
            state.maybe_shutdown()
            time.sleep(_LOOK_SECONDS)

    def close(self, parent: Any) -> None:
        """Release the messages of tasks that the pool has not started and will not run."""
        self._loop.end()
        shutdown.end_polls(self)
        shutdown.release_unstarted(self, parent.pool)

    def pool_size(self, queues: Iterable[str]) -> float:
        """Return how many messages of queues the pool runs at once; infinity without tasks."""
        return pools.pool_size(self._parent, queues)

    def start_queues(self) -> list[str]:
        """Return the names of the queues with leased messages that the worker starts with."""
        return names_to_lease(self._parent.app)

    def check_names(self, is_listed: Callable[[str], bool]) -> None:
        """Warn about settings for queues that are neither the worker's nor listed by SQS."""
        warn_of_unknown_queues(self._parent.app, self.settings.queues, is_listed)

    def refuse(self, error: SqsHeartbeatError) -> NoReturn:
        """End the worker because it can't use its queues, or has no keeper.

        Raises:
            WorkerShutdown: Always.
        """
        refuse_start(self._parent.app, error)

    def check_pool(self, error: Exception) -> None:
        """End the worker if its pool takes no jobs."""
        if pools.takes_jobs(self._parent.pool):
            return
        logger.critical(
            "sqs-heartbeat: the pool takes no tasks: the worker is broken (%s: %s). It releases "
            "the messages it has not started, and exits",
            type(error).__name__,
            error,
        )
        shutdown.end_polls(self)
        shutdown.end_worker(self.hub, error)

    @property
    def health(self) -> KeeperHealth:
        """The keeper's health, as last reported."""
        return KeeperHealth(**self._attendant.stats.get("health", {}))

    def snapshot(self) -> Sequence[LeaseView]:
        """Return a view of every lease, all at one moment."""
        return self.keeper.snapshot()

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self.keeper.now()

    def _polled(self) -> list[PolledQueue]:
        """Return the state of each queue's polls, as last reported."""
        return [PolledQueue(**each) for each in self._attendant.stats.get("polled", ())]

    def _journal_stats(self) -> JournalStats:
        """Return what happened to the journal's lines, as last reported."""
        return JournalStats(**self._attendant.stats.get("journal") or {})

    def _new_otel(self) -> OtelObserver:
        """Return an observer that links the spans of messages to their senders' spans.

        It runs in the worker's process, where the user sets up its exporters.
        """
        from celery_sqs_heartbeat.observe.otel import OtelObserver

        def traceparent_of(event: Event) -> str | None:
            request = self.requests.get((event.queue_url, event.message_id))
            headers = request.message.headers if request is not None else None
            return headers.get("traceparent") if isinstance(headers, dict) else None

        otel = OtelObserver(traceparent_of)
        otel.watch(self, self._journal_stats if self.settings.journal else None, self._polled)
        return otel

    def _take_event(self, event: Event) -> None:
        self._lost_leases(event)
        if self._otel is not None:
            self._otel(event)

    def _call_soon(self, *call: Any) -> None:
        """Call a function on the worker's event loop."""
        self._parent.consumer.call_soon(*call)

    def _report(self) -> None:
        """Do what has to be done about once a second. Another thread calls this."""
        self._loop.report()
        self.look()
        self.orphaned.look_on(self._call_soon)

    def _end_without_keeper(self, error: NoKeeper) -> None:
        """End the worker, which has no keeper. Until then, a thread of it is the keeper."""
        shutdown.end_polls(self)
        log_critical(self._parent.app, error)
        state.should_stop = EX_FAILURE

    def _end(self, **_: Any) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        atexit.unregister(self._end)
        signals.worker_shutdown.disconnect(self._end, sender=self._parent)
        shutdown.end_polls(self)
        shutdown.release_all(self)
        self.orphaned.close()
        # The keeper flushes, and exits.
        self._attendant.stop(self.settings.flush_timeout)
        self._theirs.close()
        self._lost_leases.close()
        self._restore_retries()
        bind(None)
        unshare_table()


def _run(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="sqs-heartbeat-queues", daemon=True).start()


def describe_worker(worker: Any, settings: Settings) -> WorkerInfo:
    """Return the description of a worker for a journal's first line, without secrets."""
    said = {
        field.name: repr(value)
        for field in fields(settings)
        if field.repr and (value := getattr(settings, field.name))
    }
    return WorkerInfo(
        node=worker.hostname,
        pool=type(worker.pool).__module__.rpartition(".")[2],
        concurrency=worker.concurrency,
        settings=said,
        versions=running_versions(),
    )
