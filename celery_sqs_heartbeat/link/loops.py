"""Lets a keeper detect that its worker's event loop has stalled.

A worker whose loop has stalled neither receives nor acks messages, but the keeper still extends
every lease. Nothing else would show the stall. A task of a solo pool runs in the loop: while it
runs, the loop does not count as stalled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

#: How long one turn of a loop may take, in seconds, in addition to the wait that it announces.
STALL_SECONDS = 10.0


class WorkerLoop:
    """One worker's event loop.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ticked_at: float | None = None
        self._waits = 0.0
        self._runs_tasks = False
        self._stalled_since: float | None = None

    @property
    def is_stalled(self) -> bool:
        """Whether the loop had stalled at the last check."""
        return self._stalled_since is not None

    def watch(self, *, waits: float | None, runs_tasks: bool) -> None:
        """Begin or stop to watch the loop.

        Args:
            waits: How long it may wait for messages, in seconds; None to stop watching, because
                the worker exits.
            runs_tasks: Whether tasks run in the loop.
        """
        self._ticked_at = None if waits is None else self._clock()
        self._waits, self._runs_tasks = waits or 0.0, runs_tasks

    def tick(self) -> None:
        """Note that the loop turns."""
        if self._ticked_at is not None:
            self._ticked_at = self._clock()

    @property
    def age(self) -> float | None:
        """Seconds since the loop last turned; None if it is not watched."""
        return None if self._ticked_at is None else self._clock() - self._ticked_at

    def look(self, *, has_running: bool) -> None:
        """Check whether the loop has stalled. Log the stall once, and its end once.

        Args:
            has_running: Whether a task of the worker is running.
        """
        age = self.age
        is_late = age is not None and age > STALL_SECONDS + self._waits
        has_stalled = is_late and not (self._runs_tasks and has_running)
        if has_stalled and self._stalled_since is None and age is not None:
            self._stalled_since = self._clock() - age
            logger.error(
                "sqs-heartbeat: the worker's event loop has been stalled for %.1f s: the worker "
                "neither receives nor acks messages; the keeper still extends its leases",
                age,
            )
        elif not has_stalled and self._stalled_since is not None:
            logger.warning(
                "sqs-heartbeat: the worker's event loop continues after %.1f s",
                self._clock() - self._stalled_since,
            )
            self._stalled_since = None
