"""Keeps a consumer's leases in a second process."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery_sqs_heartbeat.consumer.consumed_queues import ConsumedQueues
from celery_sqs_heartbeat.current.sharing import new_table_file
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.leases import Leases
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.attendant import Attendant
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.hello import Hello
from celery_sqs_heartbeat.observe.observers import Observers
from celery_sqs_heartbeat.sqs.adapter import BotoSqs


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _KeeperMain:
    """The objects that live from one start to the next stop. The next start makes others.

    Their threads may outlive them for a moment, and must not touch the next life.
    """

    leases: LinkedKeeper
    queues: ConsumedQueues
    attendant: Attendant
    close_table: Callable[[], object]


class ProcessKeeper:
    """Runs a consumer's keeper in a second process; see `LeaseKeeper` for the methods.

    Args:
        terms: For messages that are received without terms.
        observer: Gets every event; None if the keeper's log lines are enough.
        session: Names a function that makes the process's boto3 session; None for boto3's
            default.

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
        )
        # Only for start and stop: it is held while the process ends.
        self._lock = threading.RLock()
        self._is_running = self._is_over = False
        self._life = self._new_life()

    @property
    def leases(self) -> Leases:
        """The consumer's leases. Another object after each stop."""
        return self._life.leases

    def start(self) -> None:
        """Start the process, and the thread that listens to it. Does nothing if they run.

        Raises:
            RuntimeError: The system grants no more threads.
            SqsHeartbeatError: It has no memory to share with the process.
        """
        if self._is_forked():
            return
        with self._lock:
            if self._is_running:
                return
            if self._is_over:
                self._begin_anew()
            attendant = self._life.attendant
            # There is a process already if an earlier start got no thread.
            if attendant.pid is None:
                attendant.begin()
            attendant.start()
            self._is_running = True

    def stop(self, timeout: float) -> None:
        """Have the process flush for at most `timeout` seconds, and end."""
        if self._is_forked():
            return
        with self._lock:
            if not self._is_running:
                return
            self._is_running, self._is_over = False, True
            self._life.attendant.stop(timeout)
            # If there is no memory now, the next start raises.
            with contextlib.suppress(SqsHeartbeatError):
                self._begin_anew()

    def flush(self, timeout: float) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long."""
        leases = self._life.leases
        return not self._is_running or leases.flush(timeout)

    @property
    def health(self) -> KeeperHealth:
        """The health that the keeper reported last."""
        if self._is_forked() or not self._is_running:
            return KeeperHealth()
        attendant = self._life.attendant
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
    ) -> ReceivedAs:
        """Begin a lease on a message as SQS returned it, or continue the one it has.

        Raises:
            ConfigurationError: The process cannot make the queue's client.
        """
        if self._is_forked():
            return ReceivedAs.NEW
        terms = (terms or self._terms).with_room()
        life = self._life
        life.queues.use(queue_url, terms.threshold)
        return life.leases.receive(
            queue_url,
            message,
            terms=terms,
            hidden_for=terms.visibility_timeout if hidden_for is None else hidden_for,
            sent_at=life.leases.now() if sent_at is None else sent_at,
            max_receive_count=max_receive_count,
            task=task,
            task_id=task_id,
        )

    def _begin_anew(self) -> None:
        over, self._life = self._life, self._new_life()
        self._is_over = False
        over.close_table()

    def _new_life(self) -> _KeeperMain:
        file = new_table_file()
        table = Table(file.memory)
        leases = LinkedKeeper(HeldMessages(table))
        attendant = Attendant(
            leases,
            hello=self._hello,
            table=table,
            descriptor=file.descriptor,
            on_event=self._observe,
            on_late=self._on_late,
        )
        return _KeeperMain(
            leases=leases,
            queues=ConsumedQueues(self._sqs, leases, self._hello.session),
            attendant=attendant,
            # Not before the attendant is gone: it lets other processes inherit the descriptor.
            close_table=weakref.finalize(attendant, file.close),
        )

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()
