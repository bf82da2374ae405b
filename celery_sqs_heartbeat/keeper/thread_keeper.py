"""The keeper of leases on threads of this process: one makes its ticks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from celery_sqs_heartbeat.common.escaping import seconds
from celery_sqs_heartbeat.common.threads import wait_for
from celery_sqs_heartbeat.keeper.eventlog import log_unconfirmed
from celery_sqs_heartbeat.keeper.lease_engine import LeaseEngine
from celery_sqs_heartbeat.leases.events import KeeperHealth
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS

logger = logging.getLogger(__name__)

#: The number of unconfirmed deletes and releases at which receiving pauses. Without it, an outage
#: of SQS's deletes would pile up work without limit.
MAX_ENDING = 1_000
#: A tick counts as late only after this many seconds. Less is normal on a busy machine.
_LEAST_LATENESS = 1.0
#: A sleep that takes this many seconds longer than planned is a standstill, however short it was
#: planned. A busy machine delays a sleep by less.
_STANDSTILL_SECONDS = 1.0
#: Pause after an unexpected error in a tick, in seconds.
_FAULT_PAUSE = 0.1
#: How long the thread may take to end, and observers to process the last events, in seconds.
#: Neither waits for anything, unless it hangs.
_END_SECONDS = 5.0


class ThreadKeeper(LeaseEngine):
    """Keeps leases by ticks on a daemon thread, each at the moment that the last step returned.

    The calls run on a few more threads, several at once if one connection is too slow. An
    `Exception` of a step is logged. Any other error ends the thread, and nothing replaces it.
    """

    _thread: threading.Thread | None = None
    _is_stopped = False
    _ticked_at: float | None = None
    _due_at = math.inf
    _standstills = 0
    _was_backed_up = False

    def start(self, on_late: Callable[[float], None] = lambda seconds: None) -> None:
        """Start the thread. Does nothing if it was started before, or in a forked child.

        Args:
            on_late: Called by the thread with the seconds that a tick took, if that was too long,
                or that the process did not run.

        Raises:
            RuntimeError: The system refuses another thread.
        """
        with self.reading():
            if self._thread is None and not self._is_forked:
                # Its first tick is due now, however long the thread may take to begin it.
                self._ticked_at = self._due_at = self.now()
                thread = threading.Thread(
                    target=self._loop, args=(on_late,), name="sqs-heartbeat", daemon=True
                )
                thread.start()
                self._thread = thread

    def stop(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Flush, forget the leases, and end the thread for good. Does nothing if it is not running.

        Returns what `flush` returns. By then the observer has got the last events: the process may
        end after this, and its journal would lack what is reported later.

        Leases that are still held expire: SQS makes their messages visible when their
        visibility timeouts have passed. `timeout` is the flush's, in seconds.
        """
        if not self._is_wanted:
            return True
        is_flushed = self.flush(timeout)
        with self._reporting_after() as events, self._lock:
            events += self._book.take_events()
            self._book = self._new_book()
            self._is_stopped = True
        self._wakeup.set()
        ends_at = time.monotonic() + _END_SECONDS
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_SECONDS)
        self._dispatcher.close()
        while (me := threading.get_ident()) in self._reporting:
            # An observer has called this. Nothing may wait for it: neither this, nor another such.
            self._reporting.remove(me)
        wait_for(lambda: not self._reporting or None, max(0.0, ends_at - time.monotonic()))
        return is_flushed

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until SQS has confirmed every delete and release; False after `timeout` seconds.

        Deletes that wait for another try are tried at once. On a timeout, the unconfirmed
        deletes and releases are logged.
        """
        if not self._is_wanted:
            return True
        self.change(lambda book, now: book.results.hurry_deletes(now))
        if wait_for(lambda: not self.ending or None, timeout):
            return True
        ending = [lease for lease in self.leases() if lease.goal is not Goal.HOLD]
        log_unconfirmed(ending, timeout)
        return not ending

    @property
    def health(self) -> KeeperHealth:
        """Its health. Reading it never blocks, even if its threads hang."""
        if self._is_forked:
            return KeeperHealth()
        now, ticked_at, thread = self.now(), self._ticked_at, self._thread
        return KeeperHealth(
            alive=thread is not None and thread.is_alive(),
            last_tick_age=None if ticked_at is None else now - ticked_at,
            late=self.is_late,
            standstills=self._standstills,
            hanging=len(self._hanging),
        )

    @property
    def is_late(self) -> bool:
        """Whether a tick is so late that leases are at risk. Reading it never blocks."""
        return self._is_wanted and self.now() - self._due_at > self._most_lateness()

    @property
    def may_receive(self) -> bool:
        """Whether it can keep more leases. It can't while ticks are late or deletes pile up."""
        return not self.is_late and self.ending < MAX_ENDING

    @property
    def _is_wanted(self) -> bool:
        """Whether its thread runs, unless it has died."""
        return self._thread is not None and not self._is_stopped and not self._is_forked

    def _most_lateness(self) -> float:
        """Return how late a tick may be, in seconds: by the smallest threshold so far.

        Or by three intervals before there is one, and by a second at least.
        """
        known = self._least_threshold < math.inf
        return max(_LEAST_LATENESS, self._least_threshold if known else 3 * self._interval)

    def _loop(self, on_late: Callable[[float], None]) -> None:
        try:
            while not self._is_stopped:
                try:
                    self._sleep(self._tick(on_late), on_late)
                except Exception:
                    logger.exception("sqs-heartbeat: unexpected error in the keeper. It continues")
                    time.sleep(_FAULT_PAUSE)
        except BaseException:
            logger.critical(
                "sqs-heartbeat: the keeper's thread has died, and extends no more leases",
                exc_info=True,
            )

    def _tick(self, on_late: Callable[[float], None]) -> float:
        """Make a step, and return when the next one is due."""
        self._ticked_at = self._due_at = began = self.now()
        due = self.step()
        ended = self.now()
        self._due_at = max(due, ended)
        if ended - began > (limit := self._most_lateness()):
            logger.error(
                "sqs-heartbeat: the keeper was late: its last tick took %.1f s. A delay of more "
                "than %s s puts leases at risk. Something blocked the keeper",
                ended - began,
                seconds(limit),
            )
            on_late(ended - began)
        if self._was_backed_up is not (is_backed_up := self.ending >= MAX_ENDING):
            self._was_backed_up = is_backed_up
            logger.warning(
                "sqs-heartbeat: %d deletes and releases are not confirmed: consuming %s",
                self.ending,
                "pauses until SQS confirms them" if is_backed_up else "continues",
            )
        return self._due_at

    def _sleep(self, due: float, on_late: Callable[[float], None]) -> None:
        self._wakeup.wait(due - self.now())
        overslept = self.now() - due
        if overslept > max(_STANDSTILL_SECONDS, self._interval):
            self._standstills += 1
            logger.warning(
                "sqs-heartbeat: the process did not run for %.1f s (stopped, suspended or "
                "starved). Leases may have expired in that time",
                overslept,
            )
            on_late(overslept)
