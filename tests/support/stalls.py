"""How long a process was stalled. Claims about its timing must allow for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: How often it looks, in seconds.
TICK = 0.05
#: A delay that counts as a stall, in seconds.
COUNTS = 0.1


@dataclass(frozen=True, slots=True)
class Stall:
    """A process was stalled for so many seconds, until a time in monotonic seconds."""

    until: float
    seconds: float


def stood_still(stalls: Iterable[Stall], since: float, until: float) -> float:
    """Return how many seconds between two times any of the processes was stalled."""
    total, counted_to = 0.0, since
    for stall in sorted(stalls, key=lambda stall: stall.until - stall.seconds):
        # Stalls of two processes may overlap. They cost no more than the time that passed.
        total += max(0.0, min(stall.until, until) - max(stall.until - stall.seconds, counted_to))
        counted_to = max(counted_to, min(stall.until, until))
    return total


class StallWatch:
    """A thread that is woken late whenever its process is.

    Args:
        report: Called with each stall, on the thread.
    """

    def __init__(self, report: Callable[[Stall], None]) -> None:
        self._report = report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall-watch", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopped.wait(TICK):
            now = time.monotonic()
            if now - began - TICK > COUNTS:
                self._report(Stall(now, now - began - TICK))
            began = time.monotonic()
