"""Makes a keeper's calls on threads and hands their answers back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from celery_sqs_heartbeat.callers import CallerThreads
from celery_sqs_heartbeat.core.calls import Call, Outcome

logger = logging.getLogger(__name__)

#: Takes one outcome for each entry of a call, in their order.
Settle = Callable[[Sequence[Outcome]], None]


class SqsCalls(Protocol):
    """What a keeper needs of SQS."""

    def send(self, call: Call) -> Sequence[Outcome]:
        """Make the call and return one outcome for each entry, in their order."""


class Dispatcher(Protocol):
    """How a keeper has its calls made."""

    def dispatch(self, call: Call, settle: Settle) -> None:
        """Have the call made, and `settle` called once with what became of it."""

    def close(self) -> None:
        """Make no more calls."""


class ThreadDispatcher:
    """Makes calls on as many threads as are needed at once, up to `size`."""

    def __init__(self, sqs: SqsCalls, size: int) -> None:
        self._sqs = sqs
        self._size = size
        self._threads = self._new_threads()

    def dispatch(self, call: Call, settle: Settle) -> None:
        """Make the call soon; without a thread for it, it counts as failed."""
        try:
            self._threads.submit(functools.partial(self._perform, call, settle))
        except RuntimeError as error:
            logger.warning("sqs-heartbeat: no thread for a call (%s); it is repeated", error)
            settle([Outcome.FAILED] * len(call.entries))

    def prepare(self, job: Callable[[], object]) -> None:
        """Run a job beside the calls: what the first of them would lose time with.

        Raises:
            RuntimeError: There is no thread, and the system grants none.
        """
        self._threads.submit(job)

    def close(self) -> None:
        """Let the threads end after the calls they are in; others make the next calls."""
        self._threads.close()
        self._threads = self._new_threads()

    def _new_threads(self) -> CallerThreads:
        return CallerThreads(self._size, "sqs-heartbeat-call", apart=True)

    def _perform(self, call: Call, settle: Settle) -> None:
        outcomes: list[Outcome] = []
        try:
            outcomes = list(self._sqs.send(call))
        except Exception:
            logger.exception("sqs-heartbeat: a call failed in an unforeseen way; it is repeated")
        finally:
            # Also when the thread ends by it: leases must not wait for an answer for ever.
            missing = len(call.entries) - len(outcomes)
            settle((outcomes + [Outcome.UNKNOWN] * missing)[: len(call.entries)])
