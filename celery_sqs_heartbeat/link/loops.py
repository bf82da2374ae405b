"""Whether the event loop of a worker turns, as its keeper sees it.

A loop that stands still neither receives nor settles, though every lease is kept on: nothing
else would show it. A task of a solo pool runs in the loop, and is no standstill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

#: How long a loop may take for one turn, in seconds, beyond what it says that it may wait.
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
        """Whether it stood still at the last look."""
        return self._stalled_since is not None

    def watch(self, *, waits: float | None, runs_tasks: bool) -> None:
        """Begin to watch it, or to watch it no more.

        Args:
            waits: How long it may wait for messages, in seconds; None when the worker ends.
            runs_tasks: Whether tasks run in it.
        """
        self._ticked_at = None if waits is None else self._clock()
        self._waits, self._runs_tasks = waits or 0.0, runs_tasks

    def tick(self) -> None:
        """Note that it turns."""
        if self._ticked_at is not None:
            self._ticked_at = self._clock()

    @property
    def age(self) -> float | None:
        """Seconds since it was last seen to turn; None where it is not watched."""
        return None if self._ticked_at is None else self._clock() - self._ticked_at

    def look(self, *, has_running: bool) -> None:
        """Look whether it stands still; log it once, and once that it goes on.

        Args:
            has_running: Whether the worker has begun a task that has not ended.
        """
        age = self.age
        is_late = age is not None and age > STALL_SECONDS + self._waits
        stands_still = is_late and not (self._runs_tasks and has_running)
        if stands_still and self._stalled_since is None and age is not None:
            self._stalled_since = self._clock() - age
            logger.error(
                "sqs-heartbeat: the worker's event loop has stood still for %.1f s: it neither "
                "receives nor settles messages; those that it holds are kept on",
                age,
            )
        elif not stands_still and self._stalled_since is not None:
            logger.warning(
                "sqs-heartbeat: the worker's event loop goes on, after %.1f s",
                self._clock() - self._stalled_since,
            )
            self._stalled_since = None
