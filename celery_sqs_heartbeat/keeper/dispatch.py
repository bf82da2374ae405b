"""Makes a keeper's calls on threads and returns their answers."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.threads import CallerThreads
from celery_sqs_heartbeat.leases.events import Call, Outcome

if TYPE_CHECKING:
    from celery_sqs_heartbeat.sqs.adapter import BotoSqs

logger = logging.getLogger(__name__)

#: The most threads. A call that hangs keeps its thread when it is given up, so there may be many
#: more than calls at a time. If a name server does not answer, threads must not fill the process.
MAX_THREADS = 160
#: Takes one outcome for each entry of a call, in the same order.
ApplyResults = Callable[[Sequence[Outcome]], None]


class ThreadDispatcher:
    """Makes calls on as many threads as are needed at once, up to `size`.

    A call that was given up keeps its thread until it returns. A call with a release is not sent
    after `Call.send_by`. It then counts as failed.

    Args:
        sqs: Makes the calls.
        now: Returns monotonic seconds.
    """

    def __init__(
        self, sqs: BotoSqs, size: int = MAX_THREADS, now: Callable[[], float] = clock.now
    ) -> None:
        self._sqs = sqs
        self._now = now
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._threads = CallerThreads(size, "sqs-heartbeat-call")

    def dispatch(self, call: Call, apply_results: ApplyResults) -> None:
        """Make the call soon, and call `apply_results` once with its outcomes.

        If no thread can be started, the call counts as failed.
        """
        job = self._jobs[id(call)] = _Job()
        try:
            self._threads.submit(functools.partial(self._perform, call, apply_results, job))
        except RuntimeError as error:
            del self._jobs[id(call)]
            logger.warning(
                "sqs-heartbeat: no thread for a call (%s). The keeper repeats the call", error
            )
            apply_results([Outcome.FAILED] * len(call.entries))

    def give_up(self, call: Call) -> bool:
        """Stop waiting for a call, and return whether it may have been sent.

        A call that was not sent is never sent. Its `apply_results` is still called when the call
        returns.
        """
        with self._lock:
            job = self._jobs.get(id(call))
            if job is None:
                # It has just returned, and its answer is about to be applied.
                return True
            job.is_given_up = True
            return job.is_sent

    def close(self) -> None:
        """Let the threads end after their current calls, and make no more."""
        self._threads.close()

    def _perform(self, call: Call, apply_results: ApplyResults, job: _Job) -> None:
        outcomes: list[Outcome] = []
        try:
            # If it was given up while it waited for a thread, its leases are in another call.
            if not job.is_given_up:
                outcomes = list(self._sqs.send(call, functools.partial(self._may_send, call, job)))
        except Exception:
            logger.exception(
                "sqs-heartbeat: unexpected error in a call. The keeper repeats its extensions and "
                "deletes, but not its releases"
            )
        finally:
            # Also if the error ends the thread: leases must not wait for an answer indefinitely.
            count = len(call.entries)
            if self._now() >= call.send_by and not (job.is_sent or job.is_given_up):
                # It was certainly not sent.
                outcomes = [Outcome.FAILED] * count
            try:
                apply_results((outcomes + [Outcome.UNKNOWN] * count)[:count])
            finally:
                self._jobs.pop(id(call), None)

    def _may_send(self, call: Call, job: _Job) -> bool:
        with self._lock:
            may_send = not job.is_given_up and self._now() < call.send_by
            job.is_sent = job.is_sent or may_send
            return may_send


@dataclass(slots=True)
class _Job:
    """One call on its way through a thread."""

    is_sent: bool = False
    is_given_up: bool = False
