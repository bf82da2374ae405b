"""Stops all processes of a run again and again, as a busy host does to a virtual machine.

A test that relies on a time limit fails in such a run, and an idle machine hides it. On a busy one
(`load`, `quota`) everything becomes slower, but nothing stops for seconds.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import psutil


@contextlib.contextmanager
def stalls(longest: float) -> Iterator[None]:
    """Stop this process's descendants for random times, which add up to half of the run.

    A process that a test has stopped itself stays stopped, unless the test stops it at the very
    moment at which a stall begins.

    Args:
        longest: The longest stall in seconds, and the longest time between two; 0 for no stalls.
    """
    if not longest:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_stall_until, args=(ended, longest), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stall_until(ended: threading.Event, longest: float) -> None:
    while not ended.wait(random.uniform(0, longest)):
        stopped = _stop_all()
        ended.wait(random.uniform(0, longest))
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _stop_all() -> list[psutil.Process]:
    """Stop all descendants, and return those that were running.

    Those that were started meanwhile are stopped, too: a stopped process starts no others, so this
    ends.
    """
    seen: set[psutil.Process] = set()
    stopped: list[psutil.Process] = []
    while new := set(psutil.Process().children(recursive=True)) - seen:
        seen |= new
        stopped += [process for process in new if _stop(process)]
    return stopped


def _stop(process: psutil.Process) -> bool:
    """Stop a process, and return whether it was running."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            process.suspend()
            return True
    return False
