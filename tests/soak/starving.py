"""How long processes waited for a CPU: what a claim about their haste has to forgive them.

The kernel counts it for every thread. Unlike a late wake-up it is no fault of the process's
own: threads that wait for each other wait for no CPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

#: How often it looks, in seconds.
TICK = 0.2
#: Less in a tick is everyday life, in seconds.
COUNTS = 0.05

#: Thread ids and the nanoseconds that each has waited so far.
_Waits = dict[str, int]


class StarvationWatch:
    """A thread that reads what the kernel counts. Sees nothing where there is no Linux.

    Args:
        report: Told of a process's name, and from when until when it waited, or as good as.
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
        """Watch a process, too; it is forgotten when it ends. A name may have several."""
        self._watched[pid] = (name, time.monotonic(), _waits(pid))

    def _run(self) -> None:
        while not self._stopped.wait(TICK):
            for pid, (name, since, before) in list(self._watched.items()):
                waits, now = _waits(pid), time.monotonic()
                if not waits:
                    del self._watched[pid]
                    continue
                waited = sum(wait - before.get(thread, wait) for thread, wait in waits.items())
                self._watched[pid] = (name, now, waits)
                seconds = min(waited / 1e9, now - since)
                if seconds > COUNTS:
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
