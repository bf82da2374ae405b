"""Whether a process has something to do, as far as the system says."""

from __future__ import annotations

from pathlib import Path

#: The state of a thread that runs, or waits for a CPU (proc(5)).
_RUNNABLE = "R"


def is_busy(pid: int) -> bool:
    """Return whether a thread of a process runs, or waits for a CPU. False where there is no /proc.

    A busy machine may keep a process from its work for seconds. One that hangs in a lock or in
    the network, or that was stopped, waits for no CPU.
    """
    return any(_state(thread) == _RUNNABLE for thread in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(stat: Path) -> str:
    try:
        # The name before it may have anything in it.
        return stat.read_text(errors="replace").rpartition(") ")[2][:1]
    except OSError:
        # The thread has ended.
        return ""
