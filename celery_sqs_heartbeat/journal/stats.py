"""What has become of a journal's lines, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStats:
    """What has become of a journal's lines so far.

    Attributes:
        written: Lines in the worker's segments.
        dropped: Lines lost: for want of a disk, of time to write them, or of a spool.
        torn: Lines that workers before it had not finished when they died.
        shipped: Segments that S3 has confirmed.
        spooled_bytes: Of the closed segments that wait to be shipped.
    """

    written: int = 0
    dropped: int = 0
    torn: int = 0
    shipped: int = 0
    spooled_bytes: int = 0
