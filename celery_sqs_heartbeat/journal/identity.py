"""Tells the workers apart that write into one journal."""

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
        boot: The host's boot id; None where it has none.
        started: Wall time in microseconds. A container that is restarted has the same
            host name, process id and boot id as before.
    """

    host: str
    pid: int
    boot: str | None
    started: int

    @classmethod
    def here(cls, started: int) -> Identity:
        """Return that of this process."""
        return cls(host=socket.gethostname(), pid=os.getpid(), boot=_boot_id(), started=started)

    @property
    def wid(self) -> str:
        """A short id for each line."""
        whole = f"{self.host}\n{self.pid}\n{self.boot}\n{self.started}"
        digest = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()
        # With a letter first: whoever guesses types from folders takes it for no number.
        return f"w{digest[:_WID_DIGITS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a worker's first line tells of it. Put no credentials into it.

    Attributes:
        node: Celery's node name.
        settings: By name, as text.
        versions: By package, as text.
    """

    node: str | None = None
    pool: str | None = None
    concurrency: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def _boot_id() -> str | None:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
