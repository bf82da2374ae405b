"""Reads the column names of Parquet files, without a library and before an engine starts.

A Parquet file ends with its metadata, the metadata's length in 4 bytes, and `PAR1`. The metadata
is in Thrift's compact protocol. In it, each column's name is a string: its length, then its bytes.
"""

from __future__ import annotations

import os
from pathlib import Path

_MAGIC = b"PAR1"
_TAIL = 4 + len(_MAGIC)


class DamagedFile(Exception):
    """The file is not a complete Parquet file."""


def missing_columns(file: Path, columns: tuple[str, ...]) -> list[str]:
    """Return the columns that a Parquet file does not have.

    Raises:
        DamagedFile: It is not a Parquet file, or was cut.
        OSError: It can't be read.
    """
    metadata = _metadata(file)
    return [name for name in columns if bytes([len(name)]) + name.encode() not in metadata]


def _metadata(file: Path) -> bytes:
    with file.open("rb") as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(max(0, size - _TAIL))
        tail = source.read()
        length = int.from_bytes(tail[:4], "little")
        if not tail.endswith(_MAGIC) or length + _TAIL > size:
            raise DamagedFile
        source.seek(size - _TAIL - length)
        return source.read(length)
