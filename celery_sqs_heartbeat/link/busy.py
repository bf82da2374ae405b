"""Whether a process is running or waiting for a CPU, according to /proc."""

from __future__ import annotations

from pathlib import Path

#: The state of a thread that runs, or waits for a CPU (proc(5)).
_RUNNABLE = "R"


def is_busy(pid: int) -> bool:
    """Return whether a thread of a process runs, or waits for a CPU. False without /proc.

    On a busy machine a process may wait for a CPU for seconds. A process that was stopped, or
    hangs in a lock or in the network, does not wait for a CPU.
    """
    return any(_state(thread) == _RUNNABLE for thread in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(stat: Path) -> str:
    try:
        # The process's name comes before the state and may contain any characters.
        return stat.read_text(errors="replace").rpartition(") ")[2][:1]
    except OSError:
        # The thread has ended.
        return ""
