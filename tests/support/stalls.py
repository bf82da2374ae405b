"""How long processes were stalled, or waited for a CPU. Claims about timing must allow for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

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


#: How often a starvation watch looks, in seconds.
_LOOK_SECONDS = 0.2
#: Less waiting for a CPU than this between two looks is normal and ignored, in seconds.
_WAIT_COUNTS = 0.05

#: Thread ids and the nanoseconds that each has waited so far.
_Waits = dict[str, int]


class StarvationWatch:
    """A thread that reads for how long the kernel let threads wait for a CPU, on Linux.

    A process may wake up late through its own fault, but not wait for a CPU: threads that wait for
    each other do not count. If a whole machine stalls, its processes wait for no CPU.

    Args:
        report: Called with a process's name and the approximate time, start and end, in which it
            waited.
    """

    def __init__(self, report: Callable[[str, float, float], None]) -> None:
        self._report = report
        self._watched: dict[int, tuple[str, float, _Waits]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="starvation", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def watch(self, name: str, pid: int) -> None:
        """Watch another process until it ends. Several processes may share a name."""
        self._watched[pid] = (name, time.monotonic(), _waits(pid))

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            for pid, (name, since, before) in list(self._watched.items()):
                waits, now = _waits(pid), time.monotonic()
                if not waits:
                    del self._watched[pid]
                    continue
                waited = [(wait - before.get(each, wait)) / 1e9 for each, wait in waits.items()]
                self._watched[pid] = (name, now, waits)
                # The kernel counts a wait when it ends: it may have begun before the last look.
                seconds = max(min(sum(waited), now - since), *waited)
                if seconds > _WAIT_COUNTS:
                    self._report(name, now - seconds, now)


def _waits(pid: int) -> _Waits:
    waits: _Waits = {}
    try:
        threads = [*Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        # The process has ended.
        threads = []
    for thread in threads:
        try:
            waits[thread.parent.name] = int(thread.read_text().split()[1])
        except OSError:
            # The thread has ended.
            continue
    return waits
