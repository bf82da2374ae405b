"""Compresses lines of JSON in frames that can be read one after another."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.journal.fields import is_whole
from celery_sqs_heartbeat.journal.folders import Folder
from celery_sqs_heartbeat.journal.layout import hidden

#: Bytes of lines in a frame, before compression. Larger frames hardly compress better.
FRAME_BYTES = 1 << 20
#: Bytes of a compressed segment that are read at once. Unpacked they may be a hundred times as
#: long.
_READ_BYTES = 1 << 16
#: Makes a file from a descriptor, like `FileIO`. It must not buffer, because a forked child would
#: write the buffer a second time.
Opener = Callable[[int, str], FileIO]


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None if it is torn or not a line of a journal."""
    if not is_whole(line):
        return None
    try:
        fields: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return fields


def pack(source: FileIO, folder: Folder, name: str, opener: Opener = FileIO) -> int:
    """Compress a segment's lines into a file that exists completely or not at all.

    Args:
        name: The name of that file in its folder.

    Returns:
        How many torn lines were left out. If no line is left, there is no file.

    Raises:
        OSError: The file can't be written.
    """
    import zstandard

    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    draft = hidden(name)
    torn = size = 0
    # A killed process may have left it. Existing files are never written to.
    with contextlib.suppress(FileNotFoundError):
        folder.remove(draft)
    try:
        with opener(folder.create(draft), "rb+") as file:
            for lines in _frames(source):
                whole = [line for line in lines if is_whole(line)]
                torn += len(lines) - len(whole)
                if whole:
                    frame = compress(b"".join(whole))
                    write_all(file, frame)
                    size += len(frame)
            os.fsync(file.fileno())
        if size:
            folder.rename(draft, name)
    finally:
        # After success it does not exist any more.
        with contextlib.suppress(OSError):
            folder.remove(draft)
    return torn


def unpack(path: Path) -> Generator[bytes, None, bool]:
    """Return the lines of a closed segment, as `lines_of` does.

    Raises:
        OSError: The file can't be read.
    """
    with FileIO(path) as file:
        return (yield from lines_of(file))


def lines_of(file: FileIO) -> Generator[bytes, None, bool]:
    """Yield the complete lines of a closed segment.

    Returns:
        Whether the segment is complete. It is not if it has no line, because workers close no such
        segment. Everything after damage is left out, and so is a line without an end.
    """
    import zstandard

    frame, rest, is_empty = None, b"", True
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


def write_all(file: FileIO, data: bytes) -> None:
    """Write all of the data.

    Raises:
        OSError: It can't be written. A part of it may have been.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _frames(source: FileIO) -> Iterator[list[bytes]]:
    """Yield the lines of each frame, with line breaks. The last may have none."""
    source.seek(0)
    rest = b""
    while data := source.read(FRAME_BYTES):
        head, end, rest = (rest + data).rpartition(b"\n")
        if end:
            yield (head + end).splitlines(keepends=True)
    if rest:
        yield [rest]
