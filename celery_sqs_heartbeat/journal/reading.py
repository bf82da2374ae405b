"""Reads a journal back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.journal.layout import OPEN_SUFFIX, all_segments, closed_path
from celery_sqs_heartbeat.journal.lines import parse
from celery_sqs_heartbeat.journal.packing import unpack


def read_journal(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Return the lines of a folder's segments, open and closed, by day, worker and number.

    Also while workers write there. A line that is not finished, or torn, is left out.
    """
    for path in all_segments(Path(folder)):
        for line in _lines(path):
            if (fields := parse(line)) is not None:
                yield fields


def _lines(path: Path) -> Iterable[bytes]:
    if path.name.endswith(OPEN_SUFFIX):
        try:
            return path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            # It was closed just now.
            path = closed_path(path)
    return unpack(path)
