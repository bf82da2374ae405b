"""Starts, watches and ends the threads of a keeper."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.keeper.dispatch import SqsCalls
from celery_sqs_heartbeat.keeper.loop import KeeperLoop
from celery_sqs_heartbeat.keeper.unconfirmed import log_unconfirmed
from celery_sqs_heartbeat.keeper.watch import Watcher
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseTerms, State
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS

#: How late a round is at least when it is called late, in seconds: less is everyday life
#: on a busy machine.
_LEAST_LATENESS = 1.0
#: How often a flush looks whether it is through, in seconds.
_FLUSH_POLL = 0.01
#: How long the thread may take to end, in seconds: it waits for nothing, unless it hangs.
_JOIN_SECONDS = 5.0


class KeeperService(KeeperLoop):
    """A keeper's loop on a thread that is watched; the owner's side is `LeaseKeeper`.

    Args:
        late_after: How late the thread's rounds may be before that is reported, in
            seconds; the smallest threshold so far, or a second, where it is not given.
        loop: See `KeeperLoop`.
    """

    def __init__(self, sqs: SqsCalls, *, late_after: float | None = None, **loop: Any) -> None:
        super().__init__(sqs, **loop)
        self._late_after = late_after
        self._least_threshold = math.inf
        self._watcher = Watcher(
            self._rounds, self._revive, self._lateness_limit, self._clock, self._be_late
        )
        self._pid = os.getpid()

    def start(self) -> None:
        """Start the thread. Does nothing when it runs.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        if self._is_forked():
            return
        with self._lock:
            if not self._rounds.is_wanted:
                self._watcher.start()
                self._rounds.start()

    def stop(self, timeout: float = FLUSH_SECONDS) -> None:
        """Flush, then end the thread. Does nothing when it is not running.

        Leases that are still held are dropped: their messages become visible by
        themselves. `timeout` is that of the flush, in seconds.
        """
        if self._is_forked() or not self._rounds.is_wanted:
            return
        self.flush(timeout)
        self._watcher.stop()
        with self._lock:
            self._book = LeaseBook(self._jitter, self._board)
            self._rounds.stop()
        self._rounds.join(_JOIN_SECONDS)
        self._dispatcher.close()

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long.

        Deletes that wait for another try are tried at once. It logs which are not confirmed.
        `timeout` is in seconds.
        """
        if self._is_forked() or not self._rounds.is_wanted:
            return True
        with self._lock:
            now = self._clock()
            self._book.hurry_deletes(now)
            self._wake_if_due(now)
        deadline = time.monotonic() + timeout
        # Not on a lock: a greenlet that waits must let others run.
        while self._book.ending:
            if time.monotonic() >= deadline:
                return self._give_up(timeout)
            time.sleep(_FLUSH_POLL)
        return True

    def _give_up(self, timeout: float) -> bool:
        """Log what is not confirmed after all; return whether that is nothing."""
        with self._lock:
            ending = [lease for lease in self._book.leases() if lease.state is not State.HELD]
        log_unconfirmed(ending, timeout)
        return not ending

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._clock()

    def put_off(self, job: Callable[[], object]) -> bool:
        """Have a job done right after the call of the keeper's that this thread is in.

        For handlers of signals, see `UninterruptedLock`. False, and the job is not done, where
        the thread is in none.
        """
        return not self._is_forked() and self._lock.put_off(job)

    def __len__(self) -> int:
        """How many messages it keeps."""
        return len(self._book)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._book.ending

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self.health.alive

    @property
    def health(self) -> KeeperHealth:
        """How its thread does. Waits for nothing, also where the thread hangs."""
        return KeeperHealth() if self._is_forked() else self._watcher.health

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    def _revive(self) -> bool:
        with self._lock:
            if self._rounds.is_wanted:
                self._rounds.start()
            return self._rounds.is_wanted

    def _note_terms(self, terms: LeaseTerms) -> None:
        self._least_threshold = min(self._least_threshold, terms.threshold)

    def _lateness_limit(self) -> float:
        if self._late_after is not None:
            return self._late_after
        known = self._least_threshold < math.inf
        return max(_LEAST_LATENESS, self._least_threshold if known else 3 * self._interval)
