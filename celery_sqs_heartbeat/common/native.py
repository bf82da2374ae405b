"""Threads and locks of the system's own, also where gevent or eventlet has replaced Python's.

Both replace `threading` by something cooperative: a "thread" is a greenlet then, and runs
only when a task yields. The keeper must not wait for that. What is here never switches
greenlets, so hold it for moments only: what waits for it holds up its whole thread.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def green_library() -> str | None:
    """Return what has replaced threads or sockets: "gevent", "eventlet" or None."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent and any(map(gevent.is_module_patched, ("_thread", "socket"))):
        return "gevent"
    if eventlet and any(map(eventlet.is_monkey_patched, ("thread", "socket"))):
        return "eventlet"
    return None


def is_green() -> bool:
    """Return whether gevent or eventlet has replaced this process's threads or sockets."""
    return green_library() is not None


def _original(name: str) -> Any:
    """Return what `_thread` had under a name before anybody replaced it."""
    library = green_library()
    if library == "gevent":
        return sys.modules["gevent.monkey"].get_original("_thread", name)
    if library == "eventlet":
        return getattr(sys.modules["eventlet.patcher"].original("_thread"), name)
    return getattr(_thread, name)


_allocate_lock = _original("allocate_lock")
_start_new_thread = _original("start_new_thread")
_Local = _original("_local")

#: Neither replaces this one, as it is in C. It belongs to a thread, not to a greenlet:
#: greenlets of one thread must not switch while they hold it.
RLock = _thread.RLock

_here = _Local()


class Bell:
    """Wakes one thread that waits, or has its next wait return at once."""

    def __init__(self) -> None:
        self._silence = _allocate_lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake the thread. Rung twice is rung once."""
        try:
            self._silence.release()
        except RuntimeError:
            # It is rung already.
            return

    def wait(self, timeout: float) -> bool:
        """Wait until it is rung, for so many seconds at the most; return whether it was."""
        return bool(self._silence.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX))))


def start_thread(target: Callable[[], None], name: str) -> None:
    """Run `target` on a daemon thread of the system's.

    Raises:
        RuntimeError: The system grants no more threads.
    """

    def run() -> None:
        _here.is_apart = True
        target()

    if is_green():
        _start_new_thread(run, ())
    else:
        threading.Thread(target=target, name=name, daemon=True).start()


def start_bare_thread(target: Callable[[], None]) -> None:
    """Run `target` on a thread of the system's that takes no lock of Python's to be started.

    So a signal's handler may start one, though it may have interrupted a thread's start.

    Raises:
        RuntimeError: The system grants no more threads.
    """
    _start_new_thread(target, ())


def is_apart() -> bool:
    """Return whether this is a thread apart from those whose greenlets the tasks are."""
    return getattr(_here, "is_apart", False)


def at_end_of_thread(job: Callable[[], None]) -> None:
    """Have this thread do a job when it calls `end_thread`."""
    vars(_here).setdefault("last_jobs", []).append(job)


def end_thread() -> None:
    """Do what was put off until the end of this thread."""
    for job in vars(_here).pop("last_jobs", ()):
        job()


def connection_space() -> Any:
    """Return a namespace for what holds connections.

    It is one for all threads, but where sockets are gevent's or eventlet's: those belong
    to the thread that made them, and so each thread sees attributes of its own.
    """
    return _Local() if is_green() else SimpleNamespace()
