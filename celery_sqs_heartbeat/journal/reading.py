"""Reads a journal back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.journal.layout import OPEN_SUFFIX, all_segments, closed_path
from celery_sqs_heartbeat.journal.packing import parse, unpack


@dataclass(slots=True)
class Unread:
    """Counts the parts of a journal that could not be read.

    Attributes:
        segments: Segments that are damaged, or whose end is missing.
        lines: Lines of other segments, or before the damage, that are not lines of a journal.
        first: The segment of the first of these.
    """

    segments: int = 0
    lines: int = 0
    first: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.segments or self.lines)

    def __str__(self) -> str:
        counts = ((self.segments, "segment"), (self.lines, "line"))
        return " and ".join(counted(count, noun) for count, noun in counts if count)

    def note_segment(self, path: Path) -> None:
        """Count a segment."""
        self.segments += 1
        self.first = self.first or path

    def note_line(self, path: Path) -> None:
        """Count a line of a segment."""
        self.lines += 1
        self.first = self.first or path


def read_journal(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Return the lines of a folder's segments, open and closed, by day, worker and number.

    It works while workers write there. Unfinished and torn lines are left out.
    """
    for _, fields in read_segments(Path(folder), Unread()):
        yield fields


def read_segments(folder: Path, unread: Unread) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each line with its segment, like `read_journal`, and count what is left out.

    Raises:
        OSError: A segment can't be read.
    """
    for path in all_segments(folder):
        for line in _lines(path, unread):
            if (fields := parse(line)) is not None:
                yield path, fields
            elif line.strip():
                unread.note_line(path)


def _lines(path: Path, unread: Unread) -> Iterator[bytes]:
    """Yield the complete lines of a segment."""
    if path.name.endswith(OPEN_SUFFIX):
        try:
            *lines, rest = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            # It was closed just now.
            path = closed_path(path)
        else:
            yield from (line + b"\n" for line in lines)
            if rest:
                unread.note_segment(path)
            return
    if not (yield from unpack(path)):
        unread.note_segment(path)
