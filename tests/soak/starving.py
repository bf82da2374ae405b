"""Measures how long processes waited for a CPU. A claim about their speed must allow for it.

The kernel counts it for every thread. A process may wake up late through its own fault, but not
wait for a CPU: threads that wait for each other do not count.

If a whole machine stalls, its processes wait for no CPU. Then a thread wakes up late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.soak.model import Harm, Records
from tests.support.stalls import Stall

#: How often it looks, in seconds.
TICK = 0.2
#: Less waiting than this in a tick is normal and ignored, in seconds.
COUNTS = 0.05

#: Thread ids and the nanoseconds that each has waited so far.
_Waits = dict[str, int]


class StarvationWatch:
    """A thread that reads the kernel's counters. It sees nothing on systems other than Linux.

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
        while not self._stopped.wait(TICK):
            for pid, (name, since, before) in list(self._watched.items()):
                waits, now = _waits(pid), time.monotonic()
                if not waits:
                    del self._watched[pid]
                    continue
                waited = [(wait - before.get(each, wait)) / 1e9 for each, wait in waits.items()]
                self._watched[pid] = (name, now, waits)
                # The kernel counts a wait when it ends: it may have begun before the last look.
                seconds = max(min(sum(waited), now - since), *waited)
                if seconds > COUNTS:
                    self._report(name, now - seconds, now)


def note_stall(records: Records, stall: Stall) -> None:
    """Record a stall of the soak's own process, which runs nothing of the product.

    It concerns all workers, because their calls pass the proxies in that process.
    """
    since = stall.until - stall.seconds
    records.harms.append(Harm(what="stalled", at=since, worker="", until=stall.until))


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
