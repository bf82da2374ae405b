"""Accepts events without delay, and writes them on its own thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.journal_facts import Identity, JournalStats, WorkerInfo
from celery_sqs_heartbeat.journal import fields as contract
from celery_sqs_heartbeat.journal.folder import Root, SegmentWriter, recover
from celery_sqs_heartbeat.journal.shipping import OutageLog, Shipper, new_shipping_client
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.settings.address import Destination, parse_target

logger = logging.getLogger(__name__)

#: How many events may wait to be written: some megabytes. Further ones are lost.
QUEUE_LIMIT = 10_000
#: How often waiting lines are written, in seconds. A crash loses at most the last second.
WRITE_SECONDS = 0.5
#: How often segments of dead workers are searched for, in seconds. The first search covers all
#: days. Later ones cover two days, because it takes long to list many.
RECOVER_SECONDS = 600.0

#: Makes the fields of a line with this number, on the journal's thread.
_Make = Callable[[int, contract.Origin], dict[str, Any]]


class Journal:
    """An observer that records a keeper's events, once it is started.

    It costs its caller a microsecond. Nothing raises, and only `close` waits for the disk, at most
    for its timeout.

    Args:
        target: A folder, or `s3://bucket/prefix`.
        identity: The worker; None for this process.
        began_at: When its worker started, in seconds of `clock`; None for now.
        last: How many lines of this worker another process has numbered before.
        note: Is called with the number of each line.
        new_client: Returns a boto3 client for S3. A thread of the journal calls it.
        clock: The keeper's clock, in seconds.
        wall: Seconds since 1970.

    Raises:
        ValueError: The target is neither.
    """

    def __init__(
        self,
        target: str,
        *,
        identity: Identity | None = None,
        began_at: float | None = None,
        last: int = 0,
        note: Callable[[int], None] = lambda number: None,
        new_client: Callable[[], Any] = new_shipping_client,
        clock: Callable[[], float] = clocks.now,
        wall: Callable[[], float] = time.time,
    ) -> None:
        place = parse_target(target)
        self._outage = OutageLog("the journal")
        self._shipper: Shipper | None = None
        if isinstance(place, Destination):
            self._shipper = Shipper(place, new_client)
            self._root = self._shipper.root
        else:
            self._root = Root(place)
        self._identity = identity or Identity.here(round(wall() * 1_000_000))
        self._began_at = clock() if began_at is None else began_at
        wid = self._identity.wid
        # Every segment has at least one line, so these numbers are free.
        self._writer = SegmentWriter(self._root, wid, clock, self._outage.note, first=last + 1)
        self._before = self._last = last
        self._note_number = note
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, _Make]] = []
        self._lost = 0
        self._recover_at = -math.inf
        self._is_ending = threading.Event()
        self._thread = threading.Thread(
            target=self._live, name="sqs-heartbeat-journal", daemon=True
        )

    def __call__(self, event: Event) -> None:
        """Record an event."""
        self._put(partial(contract.fields_of, event))

    def note_late(self, seconds: float) -> None:
        """Record that the keeper was delayed by this time."""
        self._put_worker_line(contract.KEEPER_LATE, late_us=contract.microseconds(seconds) or 0)

    def start(self, info: WorkerInfo) -> None:
        """Start its threads, and write the worker's first line unless another process has.

        Call it before there are events. Later calls do nothing.
        """
        if self._thread.ident is not None:
            return
        if not self._before:
            facts = contract.fields_of_start(self._identity, info)
            self._put_worker_line(contract.WORKER_STARTED, **facts)
        try:
            if self._shipper is not None:
                self._shipper.start()
            self._thread.start()
        except RuntimeError as error:
            logger.warning(
                "sqs-heartbeat: can't start a thread for the journal (%s): it stays empty", error
            )
            self._is_ending.set()

    def close(self, timeout: float = 5.0, *, has_stopped: bool = True) -> None:
        """Write what is left, close the segment and upload it, within a timeout in seconds.

        Args:
            has_stopped: Whether the worker has stopped normally, and was not killed.
        """
        if not self._thread.is_alive():
            return
        if has_stopped:
            self._put_worker_line(contract.WORKER_STOPPED)
        until = time.monotonic() + timeout
        self._is_ending.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning("sqs-heartbeat: the journal could not finish within %g s", timeout)
        elif self._shipper is not None:
            self._shipper.finish(until)

    def step(self) -> None:
        """Write waiting lines, and do the maintenance that is due, as its thread does."""
        try:
            self._write()
            self._writer.close_if_old()
            if self._clock() >= self._recover_at:
                self._recover()
        except Exception as error:
            self._outage.note(error, is_bug=not isinstance(error, OSError))

    @property
    def stats(self) -> JournalStats:
        """The numbers of its lines so far."""
        return JournalStats(
            written=self._writer.written,
            dropped=self._dropped,
            spooled_bytes=self._shipper.waiting_bytes if self._shipper else 0,
        )

    @property
    def _dropped(self) -> int:
        """Number of lines lost so far."""
        return self._lost + (self._shipper.lost if self._shipper else 0)

    def _put_worker_line(self, ev: str, **fields: Any) -> None:
        at = self._clock()

        def make(number: int, origin: contract.Origin) -> dict[str, Any]:
            lost = {"dropped": self._dropped} if self._dropped else {}
            return origin.stamp(ev, at, number) | lost | fields

        self._put(make)

    def _put(self, make: _Make) -> None:
        if self._is_ending.is_set():
            return
        with self._lock:
            self._last += 1
            self._note_number(self._last)
            # The number of a line that finds no place is missing from the journal.
            if len(self._waiting) < QUEUE_LIMIT:
                self._waiting.append((self._last, make))

    def _live(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_ending.wait(WRITE_SECONDS)
            self.step()
        self._writer.close()

    def _write(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            numbered = self._last - self._before
        if numbered - len(waiting) > self._writer.written + self._lost:
            self._outage.note("more events than it can write")
        self._writer.write(self._lines(waiting))
        lost, self._lost = self._lost, numbered - self._writer.written
        if waiting and lost == self._lost:
            self._outage.clear(self._dropped)

    def _lines(self, waiting: list[tuple[int, _Make]]) -> Iterator[tuple[int, bytes]]:
        """Yield each line with its time, except lines that can't be made."""
        # Each time, because the wall clock may be set, or the machine suspended.
        offset = round((self._wall() - self._clock()) * 1_000_000)
        origin = contract.Origin(wid=self._identity.wid, started_at=self._began_at, offset=offset)
        for number, make in waiting:
            try:
                fields = make(number, origin)
                line = contract.line_of(fields)
            except Exception as error:
                self._outage.note(error)
            else:
                yield fields["ts"], line

    def _recover(self) -> None:
        newest = 0 if self._recover_at == -math.inf else 2
        self._recover_at = self._clock() + RECOVER_SECONDS
        recover(self._root, newest)
