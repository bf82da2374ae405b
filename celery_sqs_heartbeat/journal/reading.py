"""Finds a journal's segments, and reads their lines back."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.journal.fields import FIELDS, is_whole
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, OPEN_SUFFIX, closed_name, day_of

#: Bytes of a compressed segment that are read at once. Unpacked they may be a hundred times as
#: long.
_READ_BYTES = 1 << 16

#: The fields that each line must have.
_REQUIRED = ("v", "ts", "seq", "ev", "wid")


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


def closed_path(path: Path) -> Path:
    """Return the path of an open segment after it is closed."""
    return path.with_name(closed_name(path.name))


def open_segments(folder: Path) -> list[Path]:
    """Return the open segments, in order."""
    return _segments(folder, OPEN_SUFFIX)


def closed_segments(folder: Path) -> list[Path]:
    """Return the closed segments, in order."""
    return _segments(folder, CLOSED_SUFFIX)


def all_segments(folder: Path) -> Iterator[Path]:
    """Return each segment once, in order: by day, worker and number."""
    # List open ones first, so a segment that is closed meanwhile is in at least one list.
    still_open, closed = open_segments(folder), closed_segments(folder)
    shown = set(closed)
    left = [path for path in still_open if closed_path(path) not in shown]
    yield from _ordered([*closed, *left])


def _segments(folder: Path, suffix: str) -> list[Path]:
    return _ordered(folder.glob(f"dt=*/worker=*/seg-*{suffix}"))


def _ordered(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (path.parts[-3:-1], _number(path)))


def _number(path: Path) -> int:
    number = path.name.removeprefix("seg-").split(".", 1)[0]
    return int(number) if number.isdecimal() else 0


def is_event(fields: Mapping[str, Any]) -> bool:
    """Return whether a line's fields are an event. Its kind may be unknown."""
    has_all = all(fields.get(name) is not None for name in _REQUIRED)
    return (
        has_all
        and all(fields.get(name) is None or fits(fields[name]) for name, fits in _FITS.items())
        and _is_time(fields["ts"])
    )


def _whole(bits: int) -> Callable[[object], bool]:
    limit = 1 << (bits - 1)
    return lambda value: type(value) is int and -limit <= value < limit


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_map(value: object) -> bool:
    return isinstance(value, dict) and all(
        each is None or isinstance(each, str) for each in value.values()
    )


_TYPES = {
    "int": _whole(32),
    "bigint": _whole(64),
    "string": _is_text,
    "map<string,string>": _is_map,
}
_FITS = {field.name: _TYPES[field.type] for field in FIELDS}


def _is_time(ts: int) -> bool:
    """Return whether a time in microseconds is on a valid calendar day."""
    try:
        return day_of(ts) >= datetime.date.min.isoformat()
    except (OverflowError, ValueError):
        return False
