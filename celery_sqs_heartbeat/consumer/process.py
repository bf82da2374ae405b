"""Keeps a consumer's leases in a process of the keeper's own."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery_sqs_heartbeat.consumer.queues import ConsumedQueues
from celery_sqs_heartbeat.current.sharedfile import SharedFile
from celery_sqs_heartbeat.current.sharing import LEAST_PLACES
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.receipts import Receipt
from celery_sqs_heartbeat.leases.view import LeaseView
from celery_sqs_heartbeat.link.attendant import Attendant
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.hello import Hello
from celery_sqs_heartbeat.link.holdings import Holdings
from celery_sqs_heartbeat.link.logs import wanted_level
from celery_sqs_heartbeat.observe.observers import Observers
from celery_sqs_heartbeat.sqs.adapter import BotoSqs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Parts:
    """What is there from one start to the stop after it."""

    keeper: LinkedKeeper
    queues: ConsumedQueues
    attendant: Attendant
    close_table: Callable[[], object]


class ProcessKeeper:
    """A consumer's side of a keeper in a process of its own, see `LeaseKeeper` for the methods.

    Args:
        terms: For messages that come without terms of their own.
        observer: Is given every event; None where the keeper's lines of the log will do.
        session: Names a function that makes the process's boto3 session; None for boto3's own.

    Raises:
        SqsHeartbeatError: The system has no memory to share with the process.
    """

    def __init__(
        self,
        sqs: BotoSqs,
        *,
        terms: LeaseTerms,
        interval: float,
        late_after: float | None,
        observer: Callable[[Event], None] | None,
        on_late: Callable[[float], None],
        session: str | None,
    ) -> None:
        self._sqs = sqs
        self._terms = terms
        self._observe = Observers(*((observer,) if observer is not None else ()))
        self._on_late = on_late
        self._pid = os.getpid()
        self._hello = Hello(
            pid=self._pid,
            interval=interval,
            late_after=late_after,
            wants_all=observer is not None,
            logs_events=observer is None,
            session=session,
            path=tuple(sys.path),
        )
        # For start and stop alone: it is held while the process ends.
        self._lock = threading.RLock()
        self._is_running = False
        self._log_level = 0
        self._parts = self._new_parts()

    def start(self) -> None:
        """Start the process, and the thread that listens to it. Does nothing when they run.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        if self._is_forked():
            return
        with self._lock:
            if self._is_running:
                return
            self._report_level()
            attendant = self._parts.attendant
            # It is there already where a start before this one got no thread.
            if attendant.pid is None:
                attendant.begin()
            attendant.start()
            self._is_running = True

    def stop(self, timeout: float) -> None:
        """Have the process flush for so many seconds at the most, and end."""
        if self._is_forked():
            return
        with self._lock:
            if not self._is_running:
                return
            self._is_running = False
            self._parts.attendant.stop(timeout)
            self._parts.close_table()
            self._parts = self._new_parts()

    def flush(self, timeout: float) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long."""
        return not self._is_running or self._parts.keeper.flush(timeout)

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._parts.keeper.now()

    def __len__(self) -> int:
        """How many messages it keeps."""
        return len(self._parts.keeper)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._parts.keeper.ending

    @property
    def health(self) -> KeeperHealth:
        """How the keeper does, as it has said last."""
        if self._is_forked() or not self._is_running:
            return KeeperHealth()
        attendant = self._parts.attendant
        said = attendant.stats.get("health", {"alive": True})
        health = KeeperHealth(**said)
        return replace(health, alive=health.alive and attendant.pid is not None)

    def receive(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms | None = None,
        hidden_for: int | None = None,
        sent_at: float | None = None,
        max_receive_count: int | None = None,
        task: str | None = None,
        task_id: str | None = None,
    ) -> Receipt:
        """Begin a lease on a message as SQS returned it, or go on with the one it has.

        Raises:
            ConfigurationError: The process can't have the queue's client.
        """
        if self._is_forked():
            return Receipt.NEW
        terms = (terms or self._terms).with_room()
        parts = self._parts
        parts.queues.use(queue_url, terms.threshold)
        return parts.keeper.receive(
            queue_url,
            message,
            terms=terms,
            hidden_for=terms.visibility_timeout if hidden_for is None else hidden_for,
            sent_at=self.now() if sent_at is None else sent_at,
            max_receive_count=max_receive_count,
            task=task,
            task_id=task_id,
        )

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms. False when no lease has that handle."""
        return self._parts.keeper.done(receipt_handle)

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. False when unknown."""
        return self._parts.keeper.release(receipt_handle, delay, cause)

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins, and in which process. False when unknown."""
        return self._parts.keeper.note_start(receipt_handle, pid)

    def drop(self, receipt_handle: str) -> bool:
        """Stop extending: the message becomes visible by itself. False when unknown."""
        return self._parts.keeper.drop(receipt_handle)

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, also if its ack comes later. False when unknown."""
        return self._parts.keeper.disown(receipt_handle)

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours."""
        return self._parts.keeper.confirm(receipt_handle, timeout)

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""
        return self._parts.keeper.owns(receipt_handle)

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS says that the message is not ours any more, or we gave it up."""
        return self._parts.keeper.is_lost(receipt_handle)

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        return self._parts.keeper.is_disowned(receipt_handle)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle, as it is now. Read it only."""
        return self._parts.keeper.find(receipt_handle)

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return what is to be seen of every lease, all at one moment."""
        return self._parts.keeper.snapshot()

    def _new_parts(self) -> _Parts:
        try:
            file = SharedFile(Table.size_for(LEAST_PLACES))
        except OSError as error:
            raise SqsHeartbeatError(
                f"no memory to share a table of leases with the keeper: {error}: free some, or "
                "some of /dev/shm"
            ) from error
        table = Table(file.memory)
        keeper = LinkedKeeper(Holdings(table))
        self._log_level = wanted_level()
        attendant = Attendant(
            keeper,
            hello=replace(self._hello, level=self._log_level),
            table=table,
            descriptor=file.descriptor,
            on_event=self._observe,
            on_late=self._be_late,
            every_second=self._report_level,
        )
        return _Parts(
            keeper=keeper,
            queues=ConsumedQueues(self._sqs, keeper, self._hello.session),
            attendant=attendant,
            # With the attendant, which has other processes inherit it, and no sooner.
            close_table=weakref.finalize(attendant, file.close),
        )

    def _report_level(self) -> None:
        if (level := wanted_level()) != self._log_level:
            self._log_level = level
            self._parts.keeper.order("level", level)

    def _be_late(self, seconds: float) -> None:
        try:
            self._on_late(seconds)
        except Exception:
            logger.exception("sqs-heartbeat: the handler of a late keeper failed")

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()
