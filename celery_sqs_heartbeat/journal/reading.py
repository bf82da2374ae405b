"""Reads a journal back."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.journal.fields import is_whole
from celery_sqs_heartbeat.journal.folder import OPEN_SUFFIX, all_segments, closed_path

#: Bytes of a compressed segment that are read at once. Unpacked they may be a hundred times as
#: long.
_READ_BYTES = 1 << 16


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


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None if it is torn or not a line of a journal."""
    if not is_whole(line):
        return None
    try:
        fields: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return fields


def unpack(path: Path) -> Generator[bytes, None, bool]:
    """Yield the complete lines of a closed segment.

    Returns:
        Whether the segment is complete. It is not if it has no line, because workers close no such
        segment. Everything after damage is left out, and so is a line without an end.

    Raises:
        OSError: The file can't be read.
    """
    import zstandard

    frame, rest, is_empty = None, b"", True
    with FileIO(path) as file:
        try:
            while data := file.read(_READ_BYTES):
                while data:
                    frame = frame or zstandard.ZstdDecompressor().decompressobj()
                    *lines, rest = (rest + frame.decompress(data)).split(b"\n")
                    is_empty = is_empty and not lines
                    yield from (line + b"\n" for line in lines)
                    data = frame.unused_data if frame.eof else b""
                    frame = None if frame.eof else frame
        except zstandard.ZstdError:
            return False
    return frame is None and not rest and not is_empty
