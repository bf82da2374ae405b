"""What a process and its threads took: times and memory as Linux tells them in /proc."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from pathlib import Path

EXECUTORS, COMPILERS, COLLECTOR, PLANNING = "executors", "compilers", "collector", "planning"
PYTHON, OTHERS = "python", "others"

#: What the names of the JVM's threads begin with; /proc knows 15 letters of them. Plans are made
#: in the thread that serves Python's calls.
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
#: In `stat`, after the name: the process's user and system time; and of its children that ended.
_OWN, _OWN_AND_ENDED = slice(11, 13), slice(11, 15)
#: How often the threads are asked: what a thread took after that, before it ended, is `others`.
_PAUSE_S = 0.5


class Watch:
    """The CPU seconds of a JVM and of Python's processes, since the watch was made."""

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
        """Return the same by kinds of threads."""
        jvm, python, kinds = self._began
        found = self._by_kind() - kinds
        total = self._total() - jvm
        others = max(total - sum(found.values()), 0.0)
        own = self._python() - python
        return {**{kind: found[kind] for kind in _KINDS.values()}, OTHERS: others, PYTHON: own}

    def peak_mb(self) -> float:
        """Return the most memory that the JVM has held, of which its heap is a part."""
        match = re.search(r"^VmHWM:\s+(\d+)", (self._process / "status").read_text(), re.MULTILINE)
        return int(match[1]) / 1024 if match else 0.0

    def stop(self) -> None:
        """Look no more."""
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
        """Return the seconds by kind, those of threads that have ended as they were seen last."""
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
    """Return the CPU seconds of all processes that one has started, and they."""
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
