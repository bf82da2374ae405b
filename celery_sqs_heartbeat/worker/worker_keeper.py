"""Makes a worker's keeper: its leases, its process, and the link between the two."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

from celery.worker import state

from celery_sqs_heartbeat.common.journal_facts import Identity, JournalStats, WorkerInfo
from celery_sqs_heartbeat.current.sharing import share_table, shared_descriptor
from celery_sqs_heartbeat.leases.events import Event, KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseView
from celery_sqs_heartbeat.link.attendant import Attendant, NoKeeper
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import Hello
from celery_sqs_heartbeat.observe.watched import PolledQueue
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.worker.versions import running_versions

#: After how many seconds without an answer the event loop is asked again to show that it turns.
_ASK_AGAIN = 5.0
#: How long a worker without an event loop may wait for a free greenlet, in seconds.
_LONGEST_WAIT = 68.0
#: How often a worker that starts checks whether its keeper is ready, in seconds.
_LOOK_SECONDS = 0.02


class WorkerKeeper:
    """A worker's side of its keeper.

    Args:
        leases: The most messages that the worker holds at once, or 0 for no limit.
        concurrency: How many tasks it runs at once; 0 if not known.
        on_event: Is called with the keeper's events.

    Attributes:
        keeper: The object that the transport and the requests call.

    Raises:
        SqsHeartbeatError: The system has no memory to share.
    """

    def __init__(
        self,
        settings: Settings,
        leases: int,
        concurrency: int,
        *,
        name: str,
        on_event: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        table = share_table(leases + settings.fifo_waiting if leases else 0)
        ours, self._theirs = delivery_sockets()
        self.keeper = LinkedKeeper(HeldMessages(table), Inlet(ours.detach()))
        self._attendant = Attendant(
            self.keeper,
            hello=Hello(
                pid=os.getpid(),
                interval=settings.longest_sleep(),
                journal=settings.journal,
                identity=asdict(Identity.here(time.time_ns() // 1000)),
                status=settings.status,
                token=settings.status_token,
                name=name,
                wants_all=settings.otel,
                began_at=self.keeper.now(),
                session=settings.session,
                most_waiting=settings.fifo_waiting,
                concurrency=concurrency,
            ),
            table=table,
            descriptors=(self._theirs.fileno(), shared_descriptor()),
            on_event=on_event,
            every_second=self._report,
            give_up_after=settings.keeper_timeout,
        )
        self._worker: Any = None
        self._look: Callable[[], object] = lambda: None
        self._turns: Callable[[], float] = lambda: 0.0
        self._pool: list[int] = []
        self._is_asked, self._asked_at = False, 0.0
        self._is_connected, self._has_ended = False, False
        self._turned_at = 0.0

    def begin(self) -> None:
        """Start the keeper's process. It gets ready while the pool starts."""
        # Before it serves its page: a new worker must not look ready.
        self.keeper.order("connected", False)
        self._attendant.begin()

    def start(self, worker: Any, turns: Callable[[], float], look: Callable[[], object]) -> None:
        """Listen to the keeper, and describe the worker to it. The pool runs by now.

        Args:
            turns: Returns when the consumer's thread last took messages, or began to receive.
            look: Is called about once a second.
        """
        self._worker, self._turns, self._look = worker, turns, look
        self.keeper.order("worker", asdict(describe_worker(worker, self._settings)))
        self._report()
        self._attendant.start()

    def wait_until_ready(self, on_given_up: Callable[[NoKeeper], object]) -> None:
        """Wait for the first keeper's first tick.

        Args:
            on_given_up: Is called if the worker must end later because it has no keeper.

        Raises:
            NoKeeper: There is none.
            WorkerShutdown: The worker is stopped meanwhile.
        """
        attendant = self._attendant
        attendant.on_given_up = on_given_up
        while not attendant.is_ready:
            if attendant.error is not None:
                raise attendant.error
            state.maybe_shutdown()
            time.sleep(_LOOK_SECONDS)

    def unwatch_loop(self) -> None:
        """Tell the keeper that the worker's event loop has ended, because the worker ends."""
        self._has_ended = True
        self.keeper.order("loop", None, False)

    def stop(self, timeout: float) -> None:
        """Flush for at most `timeout` seconds, and end the keeper."""
        self._attendant.stop(timeout)
        self._theirs.close()

    @property
    def health(self) -> KeeperHealth:
        """The keeper's health, as last reported."""
        known = self._attendant.stats.get("health")
        return KeeperHealth(**known) if known else KeeperHealth()

    def polled(self) -> list[PolledQueue]:
        """Return the state of each queue's polls, as last reported."""
        return [PolledQueue(**each) for each in self._attendant.stats.get("polled", ())]

    def snapshot(self) -> Sequence[LeaseView]:
        """Return a view of every lease, all at one moment."""
        return self.keeper.snapshot()

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self.keeper.now()

    def journal_stats(self) -> JournalStats:
        """Return what happened to the journal's lines, as last reported."""
        known = self._attendant.stats.get("journal")
        return JournalStats(**known) if known else JournalStats()

    def _report(self) -> None:
        """Report to the keeper, once a second, what it can't see itself."""
        self._ask_loop()
        self._look()
        pool = _processes(self._worker.pool)
        if pool != self._pool:
            self._pool = pool
            self.keeper.order("pool", pool)

    def _ask_loop(self) -> None:
        """Ask the event loop to show that it turns, unless it has not yet answered.

        While the worker connects, no loop turns: that is no stall, which a restart would end.
        """
        now, consumer = self.keeper.now(), self._worker.consumer
        connection = consumer and consumer.connection
        is_open = bool(connection and connection.connected)
        if not is_open:
            if self._is_connected and not self._has_ended:
                self._is_connected = False
                self.keeper.order("connected", False)
                self.keeper.order("loop", None, False)
        # A question without an answer for long may have been lost with a connection.
        elif now - self._asked_at >= (_ASK_AGAIN if self._is_asked else 0):
            self._is_asked, self._asked_at = True, now
            consumer.call_soon(self._tick)
        if (turned_at := self._turns()) > self._turned_at:
            self._turned_at = turned_at
            # A solo pool may run a task since its first poll: then the loop answers only after it.
            self._note_turn(is_open=is_open)

    def _tick(self) -> None:
        self._is_asked = False
        self._note_turn(is_open=True)

    def _note_turn(self, *, is_open: bool) -> None:
        if is_open and not (self._is_connected or self._has_ended):
            self._is_connected = True
            self.keeper.order("connected", True)
            self.keeper.order("loop", *_loop(self._worker))
        self.keeper.say("tick")


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
