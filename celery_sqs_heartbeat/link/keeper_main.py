"""The process of a keeper, from the worker's first message to the worker's end."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from mmap import mmap
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.common.threads import CallerThreads
from celery_sqs_heartbeat.current.table import LeaseBoard, Table
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import MAX_CALLS, NOT_DELIVERED, KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseView
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.link.deliveries import Outlet
from celery_sqs_heartbeat.link.frames import GATHER_SECONDS, BrokenLink, Wire
from celery_sqs_heartbeat.link.messages import ROOT, Hello, LinkHandler, read_config, read_hello
from celery_sqs_heartbeat.link.observability import Observability
from celery_sqs_heartbeat.link.serving import (
    TICK_SECONDS,
    KeeperEnd,
    LinkedLeases,
    is_about_leases,
)
from celery_sqs_heartbeat.link.watching import WorkerLoop, WorkerProcesses, wait_readable
from celery_sqs_heartbeat.receiving.reception import MessageSender, Reception
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.options import find_session_function

logger = logging.getLogger(__name__)

#: How long a keeper continues after its link was closed while its worker is alive, in seconds. The
#: worker may be about to exit. If not, it has started another keeper.
_ORPHAN_SECONDS = 5.0
#: How many messages are handled before the keeper may do anything else. Each takes about 50 us.
_BATCH = 200
#: How often the keeper sends the worker its statistics, in seconds.
_STATS_SECONDS = 1.0
#: How long the last polls may be read before that time is subtracted from the flush, in seconds:
#: kombu's default wait. With the flush of 15 s, both take 25 s of Kubernetes' 30.
_FREE_WAIT_SECONDS = 10.0
#: The least time for the flush, in seconds, unless the setting is lower: a few tries of a delete.
_LEAST_FLUSH_SECONDS = 5.0


class KeeperMain:
    """One keeper's process: reads the link, writes ticks, and exits shortly after its worker.

    Args:
        wire: The keeper's end of the link.
        deliveries: The descriptor of its end of the deliveries.
        table: The table of leases, which also holds the ticks.
        hello: The worker's first message.
        logs: Whether its log lines go over the link.
    """

    def __init__(
        self, wire: Wire, deliveries: int, table: Table, hello: Hello, *, logs: bool = True
    ) -> None:
        self._wire = wire
        self._table = table
        self._processes = WorkerProcesses(hello.pid)
        if logs:
            self._start_logging(hello.level)
        new_session = find_session_function(hello.session) if hello.session else None
        self._observability = Observability(hello, table, new_session)
        # A poll outlasts the timeouts of the other calls.
        self._clients, self._poll_clients = ClientPool(new_session), ClientPool(new_session)
        sqs = BotoSqs(self._clients, self._poll_clients, self._clients.address)
        #: Make clients, and send messages again.
        self._others = CallerThreads(MAX_CALLS, "sqs-heartbeat-other")
        self._outlet = Outlet(deliveries, hello.keeper)
        self._leases = LinkedLeases(LeaseBoard(table), self._outlet, self._wire.send)
        self._keeper = ThreadKeeper(
            sqs,
            interval=hello.interval,
            observers=(
                *self._observability.observers,
                log_event,
                lambda event: self._end.report(event),
            ),
            board=self._leases,
        )
        self._reception = Reception(
            self._keeper,
            sqs=sqs,
            sender=MessageSender(self._keeper, sqs.send_message, self._others.submit),
            deliver=self._leases.deliver,
            keep=self._leases.keep,
            most_waiting=hello.most_waiting,
            concurrency=hello.concurrency,
        )
        self._end = KeeperEnd(
            self._keeper,
            self._leases,
            self._wire.send,
            self._reception,
            wants_all=hello.wants_all,
        )
        self._stats_at = self._look_at = 0.0
        self._loop = WorkerLoop(clock.now)
        self._is_connected = True
        self._replaced = 0
        self._orphaned_at: float | None = None
        self._stop_timeout: float | None = None

    @property
    def health(self) -> KeeperHealth:
        """The health of the keeper and of the worker's event loop."""
        health = self._keeper.health
        return replace(
            health,
            replaced=self._replaced,
            loop_age=self._loop.age,
            stalled=self._loop.is_stalled,
            connected=self._is_connected,
        )

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all taken at one moment."""
        return self._keeper.snapshot()

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._keeper.now()

    def run(self, messages: list[list[Any]]) -> int:
        """Keep the leases until the worker stops the keeper or ends. Return the exit status.

        Args:
            messages: Those that arrived together with the first.
        """
        self._take_all(messages)
        self._keeper.start(self._observability.note_late)
        threading.Thread(target=self._read_rooms, name="sqs-heartbeat-rooms", daemon=True).start()
        self._observability.start(self, self._reception.polled.view)
        while self._stop_timeout is None and not self._processes.main.has_ended:
            self._serve()
            if self._is_replaced():
                # Another keeper has the leases.
                return 0
            if not self._keeper.health.alive:
                # The worker starts another keeper.
                self._wire.flush()
                return 1
        has_stopped = self._stop_timeout is not None
        if not has_stopped:
            # The worker's last messages, for example about tasks that are done.
            self._take_all(self._wire.receive() or ())
            self._reception.is_urgent = True
            self._reception.end()
            self._end.release_all_held(self._processes)
        self._finish(has_stopped=has_stopped)
        return 0

    def close(self) -> None:
        """Leave the deliveries to the next keeper, and close the link.

        The worker waits for this process to end from now on, and looks for no sign of life.
        """
        self._outlet.close()
        self._wire.close()

    def _read_rooms(self) -> None:
        while self._outlet.read_rooms(self._reception.allow):
            pass

    def _serve(self) -> None:
        """Wait for messages for one tick, then handle them."""
        worker = self._processes.main.fileno()
        readers = [worker] if worker is not None else []
        if not self._wire.is_broken:
            readers.append(self._wire.fileno())
        if wait_readable(readers, TICK_SECONDS):
            time.sleep(GATHER_SECONDS)
        self._read()
        self._tick()

    def _read(self) -> None:
        if not self._wire.is_broken:
            self._take_all(self._wire.receive() or ())
            self._wire.flush()

    def _tick(self) -> None:
        self._loop.look(has_running=bool(self._leases.pids))
        now = clock.now()
        if now >= self._look_at:
            self._look_at = now + TICK_SECONDS
            self._reception.look()
        if left_out := self._wire.take_left_out():
            logger.warning(
                "sqs-heartbeat: the worker did not read its keeper's log for a time: %s left out",
                counted(left_out, "line"),
            )
        health = self.health
        if health.alive and not health.late:
            self._table.tick = now
        if now - self._stats_at >= _STATS_SECONDS:
            self._stats_at = now
            polled = [asdict(each) for each in self._reception.polled.view()]
            stats: dict[str, Any] = {"health": asdict(health), "polled": polled}
            if (journal := self._observability.journal_stats) is not None:
                stats["journal"] = asdict(journal)
            self._wire.send(("stats", stats))

    def _take_all(self, messages: Sequence[list[Any]]) -> None:
        for first in range(0, len(messages), _BATCH):
            for about_leases, run in groupby(messages[first : first + _BATCH], is_about_leases):
                # The keeper looks for due calls only once.
                with self._keeper.gathering() if about_leases else nullcontext():
                    for message in run:
                        self._take(message)

    def _take(self, message: list[Any]) -> None:
        match message:
            case ["reach", queue_url, threshold, address, config]:
                read = read_config(config)
                self._clients.use(read, queue_url, threshold, address=address)
                self._poll_clients.use(read, address, None)
                # The client is made now: on a busy machine this takes a second, and the first call
                # may be too urgent to wait for it.
                self._others.submit(partial(self._make_client, queue_url))
            case ["gap", seconds, int(deaths)]:
                self._replaced = deaths
                self._observability.note_late(seconds)
            case ["tick"]:
                self._loop.tick()
            case ["loop", waits, bool(runs_tasks)]:
                self._loop.watch(waits=waits, runs_tasks=runs_tasks)
            case ["connected", bool(is_connected)]:
                self._is_connected = is_connected
            case ["pool", list(pids)]:
                self._processes.note_pool(pids)
            case ["worker", dict(info)]:
                self._observability.describe(WorkerInfo(**info))
            case ["level", int(level)]:
                logging.getLogger(ROOT).setLevel(level)
            case ["stop", timeout]:
                self._stop_timeout = float(timeout)
            case _ if not self._end.take(message):
                raise BrokenLink(f"the worker sent an unknown message: {message[0]!r}")

    def _make_client(self, queue_url: str) -> None:
        # If this fails, the first call reports it.
        with suppress(ConfigurationError):
            self._clients(queue_url)

    def _finish(self, *, has_stopped: bool) -> None:
        """Flush and end, and keep writing ticks meanwhile.

        Without ticks, the worker would take a flush of more than a second for a hang. The worker
        limits the total time.
        """
        timeout = self._stop_timeout if self._stop_timeout is not None else FLUSH_SECONDS

        def end() -> None:
            waited = self._read_last_polls()
            left = flush_time_left(timeout, waited)
            self._keeper.stop(left - self._reception.sender.wait(left))
            self._observability.close(has_stopped=has_stopped)

        ending = threading.Thread(target=end, name="sqs-heartbeat-end", daemon=True)
        ending.start()
        while ending.is_alive():
            self._table.tick = clock.now()
            self._read()
            ending.join(TICK_SECONDS)
        self._wire.flush()

    def _read_last_polls(self) -> float:
        """Read open polls to their end, and release what no one takes. Return the seconds taken."""
        began = clock.now()
        self._reception.end()
        if not self._reception.join():
            logger.warning(
                "sqs-heartbeat: a poll that was open when the shutdown began is not answered yet: "
                "messages that it returns become visible again after their visibility timeout"
            )
        for lease in reversed(self._end.held()):
            # On its way to a worker that does not read it any more.
            if lease.started_at is None:
                self._keeper.release(lease.receipt_handle, 0, NOT_DELIVERED)
        return clock.now() - began

    def _is_replaced(self) -> bool:
        if not self._wire.is_broken:
            return False
        # Two keepers of a worker must not both receive.
        self._reception.end()
        now = clock.now()
        self._orphaned_at = self._orphaned_at or now
        return now - self._orphaned_at >= _ORPHAN_SECONDS

    def _start_logging(self, level: int) -> None:
        root = logging.getLogger(ROOT)
        root.setLevel(level)
        root.propagate = False
        root.handlers = [LinkHandler(self._say_or_write)]

    def _say_or_write(self, message: Any) -> None:
        if self._wire.is_broken or self._processes.main.has_ended:
            # No one reads the link any more. The worker's standard error is still open.
            sys.stderr.write(f"{message[1]['text']}\n")
        else:
            self._wire.send(message)


def flush_time_left(flush_timeout: float, waited: float) -> float:
    """Return how long the final flush may take, in seconds.

    Args:
        flush_timeout: The setting, in seconds.
        waited: How long the last polls were read, in seconds. Meanwhile, the keeper already
            deletes and releases messages.
    """
    left = flush_timeout - max(0.0, waited - _FREE_WAIT_SECONDS)
    return max(left, min(flush_timeout, _LEAST_FLUSH_SECONDS))


def run(link: int, deliveries: int, table: int, *, logs: bool = True) -> int:
    """Be the keeper of the worker at the other end of a link. Return the exit status.

    Args:
        link: The descriptor of the link.
        deliveries: The descriptor of the deliveries.
        table: The descriptor of the table of leases.
        logs: Whether its log lines go over the link: not on a thread of its worker.

    Raises:
        BrokenLink: The worker is of another version, or sent an invalid message.
    """
    wire = Wire(link)
    first: list[list[Any]] | None = []
    while first == []:
        wait_readable([wire.fileno()], None)
        first = wire.receive()
    if first is None:
        return 0
    hello = read_hello(first[0])
    life = KeeperMain(wire, deliveries, Table(mmap(table, 0)), hello, logs=logs)
    status = life.run(first[1:])
    life.close()
    return status
