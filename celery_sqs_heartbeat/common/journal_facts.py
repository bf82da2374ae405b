"""What a worker and its journal know of each other: who writes, and how many lines."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_WID_DIGITS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process from its start to its end.

    Attributes:
        boot: The host's boot id, or None.
        started: Wall time in microseconds. It is needed because a restarted container has the
            same host name, process id and boot id as before.
    """

    host: str
    pid: int
    boot: str | None
    started: int

    @classmethod
    def here(cls, started: int) -> Identity:
        """Return the identity of this process."""
        return cls(host=socket.gethostname(), pid=os.getpid(), boot=_boot_id(), started=started)

    @property
    def wid(self) -> str:
        """A short id, which each line contains."""
        whole = f"{self.host}\n{self.pid}\n{self.boot}\n{self.started}"
        digest = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()
        # It starts with a letter, so readers that infer types from folder names do not read it as a
        # number.
        return f"w{digest[:_WID_DIGITS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """The facts in a worker's first line. Never put credentials here.

    Attributes:
        node: Celery's node name.
        settings: Settings by name, as text.
        versions: Versions by package, as text.
    """

    node: str | None = None
    pool: str | None = None
    concurrency: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStats:
    """Numbers of a journal's lines so far.

    Attributes:
        written: Lines in the worker's segments.
        dropped: Lines lost, because the disk failed, there was no time to write them, or the
            spool was full.
        spooled_bytes: Size of the closed segments that wait for their upload.
    """

    written: int = 0
    dropped: int = 0
    spooled_bytes: int = 0


def _boot_id() -> str | None:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
