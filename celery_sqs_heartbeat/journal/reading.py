"""Finds a journal's segments, and reads their lines back.

A journal on S3 is copied into a folder first. Why by boto3:
docs/decisions/2026-11-22-copy-journals-from-s3.md.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.journal.checking import date_of
from celery_sqs_heartbeat.journal.fields import FIELDS, is_whole
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, OPEN_SUFFIX, closed_path
from celery_sqs_heartbeat.settings.address import Destination, parse_target

#: Of zstd's format: the longest header of a frame, other lengths in bytes, and the type of a block
#: with one byte that is repeated.
_HEADER_BYTES, _BLOCK_HEADER_BYTES, _CHECKSUM_BYTES, _RLE = 18, 3, 4, 1

#: Objects that are copied from S3 at the same time.
_THREADS = 16
#: The end of a segment's key on S3, after `dt=`.
_SEGMENT = re.compile(rf"(\d{{4}}-\d\d-\d\d)/worker=[^/]+/seg-[^/]+{re.escape(CLOSED_SUFFIX)}")
#: The fields that each line must have.
_REQUIRED = ("v", "ts", "seq", "ev", "wid")
#: The start of the calendar's last day, 9999-12-31, in microseconds. No event is that late.
_END_OF_TIME = 253_402_214_400_000_000
#: Whether a value fits a type of the contract.
_FITS: dict[str, Callable[[object], bool]] = {
    "int": lambda value: type(value) is int and -(1 << 31) <= value < 1 << 31,
    "bigint": lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63,
    "string": lambda value: isinstance(value, str),
    "map<string,string>": lambda value: (
        isinstance(value, dict)
        and all(each is None or isinstance(each, str) for each in value.values())
    ),
}


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

    with _opened(path) as file:
        data = file.readall()
    rest, has_lines, has_end = b"", False, False
    try:
        # A frame of a worker has at most a megabyte.
        while data:
            frame = zstandard.ZstdDecompressor().decompressobj()
            *lines, rest = (rest + frame.decompress(data)).split(b"\n")
            has_lines = has_lines or bool(lines)
            yield from (line + b"\n" for line in lines)
            data, has_end = frame.unused_data, frame.eof
    except zstandard.ZstdError:
        return False
    return has_lines and has_end and not rest


def _opened(path: Path) -> FileIO:
    # Without O_NONBLOCK, opening a pipe would block.
    return FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def is_complete(path: Path) -> bool:
    """Return whether a closed segment consists of whole frames with content, without unpacking it.

    Readers such as Spark's take the end of a file within a frame for the end of the segment. RFC
    8878, "Zstandard Frames", describes the format. Damage within a block shows only when the block
    is unpacked.

    Raises:
        OSError: It can't be read.
    """
    import zstandard

    with _opened(path) as file:
        data, end, content = file.readall(), 0, 0
    try:
        while end < len(data):
            end, more = _frame(data, end)
            content += more
    except zstandard.ZstdError:
        return False
    return end == len(data) and content > 0


def _frame(data: bytes, start: int) -> tuple[int, int]:
    """Return the end of a frame, beyond the data if it is missing, and the bytes in its blocks."""
    import zstandard

    header = data[start : start + _HEADER_BYTES]
    place = start + zstandard.frame_header_size(header)
    has_checksum = zstandard.get_frame_parameters(header).has_checksum
    content = 0
    while place < len(data):
        block = int.from_bytes(data[place : place + _BLOCK_HEADER_BYTES], "little")
        is_last, kind, length = block & 1, block >> 1 & 3, block >> 3
        place += _BLOCK_HEADER_BYTES + (1 if kind == _RLE else length)
        content += length
        if is_last:
            return place + (_CHECKSUM_BYTES if has_checksum else 0), content
    return len(data) + 1, content


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
    return (
        all(fields.get(name) is not None for name in _REQUIRED)
        and all(
            fields.get(field.name) is None or _FITS[field.type](fields[field.name])
            for field in FIELDS
        )
        and 0 <= fields["ts"] < _END_OF_TIME
    )


class FetchError(SqsHeartbeatError):
    """A journal can't be copied from S3. The message has the way out."""


@contextlib.contextmanager
def fetched(
    journal: str, first: datetime.date | None, last: datetime.date | None, around: int
) -> Iterator[Path]:
    """Provide a folder with a copy of some days of a journal, until the context ends.

    Args:
        journal: `s3://BUCKET/PREFIX`.
        first: The first day; None for the journal's own first.
        last: The last one, likewise.
        around: How many days before and after to copy, too. Their folders may have some of the
            lines.

    Raises:
        FetchError: There is no journal, S3 refuses access, no folder can be written, or it is not
            a valid URL.
    """
    # Not imported at the top, because boto3 takes a tenth of a second.
    import boto3
    from boto3.exceptions import Boto3Error
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        source = parse_target(journal)
    except ValueError as error:
        raise FetchError(f"the journal {journal!r} {error}") from None
    assert isinstance(source, Destination)
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="sqs-heartbeat-journal-")))
            config = Config(max_pool_connections=_THREADS, retries={"mode": "standard"})
            s3 = boto3.Session().client("s3", config=config)
            keys = list(_keys(s3, source, Span(first, last).grown(around)))
            if not keys and next(_keys(s3, source, Span()), None) is None:
                raise FetchError(
                    f"there is no journal at {journal!r}: no key there is a segment, such as "
                    "dt=YYYY-MM-DD/worker=ID/seg-1.jsonl.zst. Give the value of "
                    "sqs_heartbeat_journal; a worker uploads its first segment after five minutes"
                )
            with ThreadPoolExecutor(_THREADS) as threads:
                for _ in threads.map(lambda key: _copy(s3, source, key, folder), keys):
                    pass
        except (Boto3Error, BotoCoreError, ClientError, ValueError) as error:
            raise FetchError(
                f"the journal {journal!r} can't be read: {error}. boto3 finds region and "
                "credentials in the environment, a profile or a role; they need s3:ListBucket and "
                "s3:GetObject"
            ) from None
        except OSError as error:
            raise FetchError(
                f"the journal {journal!r} can't be copied to {gettempdir()!r}: {error}; set TMPDIR "
                "to use another place for temporary folders"
            ) from None
        yield folder


def _keys(s3: Any, source: Destination, span: Span) -> Iterator[str]:
    """Yield the keys of the segments of these days. S3 lists keys in order."""
    prefix = source.key(Path("dt="))
    pages = s3.get_paginator("list_objects_v2").paginate(
        # Before the first key of that day, and after all keys of the day before.
        Bucket=source.bucket,
        Prefix=prefix,
        StartAfter=f"{prefix}{span.first or ''}",
    )
    for key in (found["Key"] for page in pages for found in page.get("Contents", ())):
        if match := _SEGMENT.fullmatch(key.removeprefix(prefix)):
            try:
                day = date_of(match[1])
            except ValueError as error:
                raise FetchError(f"'s3://{source.bucket}/{key}' {error}") from None
            if span.last and day > span.last:
                return
            yield key


def _copy(s3: Any, source: Destination, key: str, folder: Path) -> None:
    from boto3.s3.transfer import TransferConfig

    path = folder / key.removeprefix(source.prefix).lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    s3.download_file(source.bucket, key, str(path), Config=TransferConfig(use_threads=False))
