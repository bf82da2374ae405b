"""Checks whether a closed segment is complete, without unpacking it.

If a file ends within a frame, a reader may take that for the end of the segment, as Spark's does
in every frame except the first. So this walks the frames from header to header. RFC 8878,
"Zstandard Frames", describes the format.
"""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path

#: The longest header of a frame, in bytes.
_HEADER_BYTES = 18
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
#: The block type with one byte that is repeated.
_RLE = 1
#: The start of a skippable frame, without the last four bits.
_SKIPPED, _SKIPPED_HEADER_BYTES = 0x184D2A5, 8


def is_whole(segment: Path) -> bool:
    """Return whether a file consists of complete frames, with content in them.

    Damage within a block shows only when the block is unpacked.

    Raises:
        OSError: It can't be read.
    """
    # Without O_NONBLOCK, opening a pipe would block.
    with FileIO(os.open(segment, os.O_RDONLY | os.O_NONBLOCK)) as file:
        size, end, content = os.fstat(file.fileno()).st_size, 0, 0
        while end < size:
            frame = _frame(file, end)
            if frame is None or frame[0] > size:
                return False
            end, content = frame[0], content + frame[1]
        return content > 0


def _frame(file: FileIO, start: int) -> tuple[int, int] | None:
    """Return the end of a frame and the bytes in its blocks; None if there is no frame."""
    import zstandard

    header = _read(file, start, _HEADER_BYTES)
    if int.from_bytes(header[:4], "little") >> 4 == _SKIPPED:
        return start + _SKIPPED_HEADER_BYTES + int.from_bytes(header[4:8], "little"), 0
    try:
        place = start + zstandard.frame_header_size(header)
        has_checksum = zstandard.get_frame_parameters(header).has_checksum
    except zstandard.ZstdError:
        return None
    content, is_last = 0, False
    while not is_last:
        begin = _read(file, place, _BLOCK_HEADER_BYTES)
        if len(begin) < _BLOCK_HEADER_BYTES:
            return None
        block = int.from_bytes(begin, "little")
        is_last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
        place += _BLOCK_HEADER_BYTES + (1 if kind == _RLE else length)
        content += length
    return place + (_CHECKSUM_BYTES if has_checksum else 0), content


def _read(file: FileIO, start: int, count: int) -> bytes:
    file.seek(start)
    return file.read(count)
