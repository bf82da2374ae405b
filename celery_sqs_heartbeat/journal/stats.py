"""Numbers of a journal's lines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStats:
    """Numbers of a journal's lines so far.

    Attributes:
        written: Lines in the worker's segments.
        dropped: Lines lost, because the disk failed, there was no time to write them, or the
            spool was full.
        torn: Unfinished lines of workers that died before.
        shipped: Segments that S3 has confirmed.
        spooled_bytes: Size of the closed segments that wait for their upload.
    """

    written: int = 0
    dropped: int = 0
    torn: int = 0
    shipped: int = 0
    spooled_bytes: int = 0
