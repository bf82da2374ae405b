"""The times and memory of a process and its threads, read from Linux's /proc."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from pathlib import Path

EXECUTORS, COMPILERS, COLLECTOR, PLANNING = "executors", "compilers", "collector", "planning"
PYTHON, OTHERS = "python", "others"

#: How the names of the JVM's threads begin. /proc shows 15 letters of them. The thread that serves
#: Python's calls makes the plans.
_KINDS = {
    "Executor task": EXECUTORS,
    "C1 Compiler": COMPILERS,
    "C2 Compiler": COMPILERS,
    "VM Thread": COLLECTOR,
    "GC Thread": COLLECTOR,
    "G1 ": COLLECTOR,
    "Thread-": PLANNING,
}
_TICKS = os.sysconf("SC_CLK_TCK")
#: The fields of `stat` after the name: user and system time of the process and its ended children.
_OWN, _OWN_AND_ENDED = slice(11, 13), slice(11, 15)
#: How often the threads are read. The time between the last reading and a thread's end is `others`.
_PAUSE_S = 0.5


class Watch:
    """The CPU seconds of a JVM and of Python's processes since the watch began."""

    def __init__(self, pid: int) -> None:
        self._process = Path("/proc", str(pid))
        self._threads: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._began = self._total(), self._python(), self._by_kind()
        self._is_over = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def cpu(self) -> float:
        """Return the CPU seconds of all these processes."""
        jvm, python, _ = self._began
        return self._total() - jvm + self._python() - python

    def by_kind(self) -> dict[str, float]:
        """Return the CPU seconds by kinds of threads."""
        jvm, python, kinds = self._began
        found = self._by_kind() - kinds
        total = self._total() - jvm
        others = max(total - sum(found.values()), 0.0)
        own = self._python() - python
        return {**{kind: found[kind] for kind in _KINDS.values()}, OTHERS: others, PYTHON: own}

    def peak_mb(self) -> float:
        """Return the peak memory of the JVM, including its heap."""
        match = re.search(r"^VmHWM:\s+(\d+)", (self._process / "status").read_text(), re.MULTILINE)
        return int(match[1]) / 1024 if match else 0.0

    def stop(self) -> None:
        """Stop watching."""
        self._is_over.set()

    def _look(self) -> None:
        while not self._is_over.wait(_PAUSE_S):
            self._by_kind()

    def _python(self) -> float:
        """Return the CPU seconds of this process and of the JVM's children: Spark's workers."""
        return time.process_time() + _times_below(self._process)

    def _total(self) -> float:
        return _times(self._process / "stat")[1]

    def _by_kind(self) -> Counter[str]:
        """Return the seconds by kind. For ended threads it uses the last reading."""
        with self._lock:
            for thread in (self._process / "task").glob("*"):
                try:
                    self._threads[thread.name] = _times(thread / "stat")
                except OSError:
                    continue
            kinds: Counter[str] = Counter()
            for name, seconds in self._threads.values():
                for prefix, kind in _KINDS.items():
                    if name.startswith(prefix):
                        kinds[kind] += seconds  # type: ignore[assignment]
            return kinds


def _times_below(process: Path) -> float:
    """Return the CPU seconds of all direct and indirect child processes."""
    seconds = 0.0
    for children in process.glob("task/*/children"):
        try:
            for pid in children.read_text().split():
                child = process.with_name(pid)
                seconds += _times(child / "stat", _OWN_AND_ENDED)[1] + _times_below(child)
        except OSError:
            continue
    return seconds


def _times(stat: Path, fields: slice = _OWN) -> tuple[str, float]:
    """Return the name and the CPU seconds of a process or a thread."""
    begin, _, end = stat.read_text().rpartition(")")
    return begin.partition("(")[2], sum(map(int, end.split()[fields])) / _TICKS
