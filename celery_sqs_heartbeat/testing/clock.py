"""A clock that the test moves, with jobs that run at their time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class FakeClock:
    """Monotonic seconds that pass only when the test moves them.

    Call it to get the time, like `time.monotonic`. Jobs that were scheduled with `at` run in the
    order of their times while `advance` or `run_next` moves the clock.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()

    def __call__(self) -> float:
        """Return the time, in seconds."""
        return self._now

    def at(self, time: float, job: Callable[[], None]) -> None:
        """Run `job` at that time, or next if that time has passed."""
        heapq.heappush(self._scheduled, (max(time, self._now), next(self._serial), job))

    def next_time(self) -> float | None:
        """Return the time of the next job, or None."""
        return self._scheduled[0][0] if self._scheduled else None

    def run_next(self) -> bool:
        """Move to the next job and run it; False if there is none."""
        if not self._scheduled:
            return False
        self._now, _, job = heapq.heappop(self._scheduled)
        job()
        return True

    def advance(self, seconds: float) -> None:
        """Let time pass, and run the jobs that fall due."""
        end = self._now + seconds
        while self._scheduled and self._scheduled[0][0] <= end:
            self.run_next()
        self._now = end
