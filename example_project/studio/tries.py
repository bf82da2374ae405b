"""The tries of a job: one for each time that a worker started it.

A try is a file, which its worker keeps locked. The system removes the lock when the process ends,
even if it is killed. So a try that has no end and no lock was cut short. The files that a try
makes are in a folder beside it until they are complete.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a job.

    Attributes:
        receive_count: How often SQS had delivered the message, or None without a lease.
        max_receives: After how many receives SQS moves it to the dead-letter queue, or None
            if that is not known.
        fault: Why it failed, if it has.
        is_running: Whether a worker runs it.
    """

    receive_count: int | None
    max_receives: int | None
    fault: str
    is_running: bool

    @property
    def is_last(self) -> bool:
        """Whether SQS delivers the message to no worker after this try."""
        known = self.receive_count is not None and self.max_receives is not None
        return known and self.receive_count >= self.max_receives

    @property
    def text(self) -> str:
        """The text on the page: the receive, and the fault if there is one."""
        begun = "no lease" if self.receive_count is None else f"receive {self.receive_count}"
        return f"{begun}: {self.fault}" if self.fault else begun


@contextmanager
def noted(folder: Path, receive_count: int | None, max_receives: int | None) -> Iterator[Path]:
    """Record a try in a folder while the block runs, and how the block ended.

    Yields a folder for the files that the block makes. It is removed after the block.
    """
    folder.mkdir(exist_ok=True)
    # Names sort by time. Another worker may start at the same time.
    path = folder / f"{time.time_ns():020}-{os.getpid()}.json"
    terms = {"receive_count": receive_count, "max_receives": max_receives}
    unlocked = path.with_suffix(".new")
    with unlocked.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(terms, file)
        file.flush()
        unlocked.rename(path)  # So it is locked before anyone can see it.
        _clear(folder)
        draft = path.with_suffix(".draft")
        draft.mkdir()
        try:
            yield draft
        except BaseException as error:
            path.with_suffix(".fault").write_text(str(error) or type(error).__name__)
            raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            _clear(folder)
        path.with_suffix(".fault").write_text("")


def of(folder: Path) -> list[Try]:
    """Return the tries in a folder, the first one first."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _clear(folder: Path) -> None:
    """Remove the files of tries that were cut short.

    A try that still runs keeps its folder: it has lost its lease, or has a second message for the
    job. It removes the folder itself.
    """
    for draft in folder.glob("*.draft"):
        if not _is_locked(draft.with_suffix(".json")):
            shutil.rmtree(draft, ignore_errors=True)


def _read(path: Path) -> Try:
    # Look at the lock before the fault: the fault is written before the lock is removed.
    is_running = _is_locked(path)
    end = path.with_suffix(".fault")
    fault = "" if is_running else end.read_text() if end.exists() else "cut short"
    return Try(**json.loads(path.read_text()), fault=fault, is_running=is_running)


def _is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            # A shared lock, so that one page does not take another for a worker.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
