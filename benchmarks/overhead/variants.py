"""The workers that the part `overhead` compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.endless.working import Kind, Setup

#: More than the tasks of any turn. When its prefetch count is reached, a stock worker only waits.
#: (Celery takes a multiplier of 0 on its command line for none.)
UNLIMITED = 5_000

STOCK, OURS, JOURNAL = "stock", "heartbeat", "heartbeat, journal"
ALL = (STOCK, OURS, JOURNAL)


def setups_of(names: Sequence[str], folder: Path, *, fresh: bool = False) -> Mapping[str, Setup]:
    """Return how to start each worker.

    Args:
        folder: For the journal.
        fresh: Whether they import Celery themselves.
    """
    return {name: _setup_of(name, folder, fresh=fresh) for name in names}


def _setup_of(name: str, folder: Path, *, fresh: bool) -> Setup:
    conf: dict[str, str] = {}
    if name == JOURNAL:
        conf["sqs_heartbeat_journal"] = str(folder / "journal")
    kind = Kind.STOCK if name == STOCK else Kind.OURS
    return Setup(kind=kind, prefetch=UNLIMITED, conf=conf, fresh=fresh)
