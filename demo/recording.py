"""Writes the ledger: any process adds a line for each start and end of a task."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.ledger import Event, Execution, executions

#: The environment variable with the path of the ledger.
LEDGER = "DEMO_LEDGER"


def note(ledger: Path, event: Event, **values: str | int) -> None:
    """Append a line. It stays whole, because one short write to an appended file is not split."""
    line = json.dumps({"event": event.value, "at": time.time(), **values}) + "\n"
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read(ledger: Path) -> list[Execution]:
    """Return the executions so far."""
    if not ledger.exists():
        return []
    with ledger.open(encoding="utf-8") as lines:
        return executions(lines)


@contextmanager
def recorded(task: str) -> Iterator[list[Execution]]:
    """Note an execution's start and end. Yields the executions before it."""
    ledger = Path(os.environ[LEDGER])
    before = read(ledger)
    run = uuid.uuid4().hex
    note(ledger, Event.STARTED, run=run, task=task, pid=os.getpid(), group=os.getpgrp())
    try:
        yield before
    except Exception:
        note(ledger, Event.FAILED, run=run)
        raise
    note(ledger, Event.SUCCEEDED, run=run)
