"""Writes lines into segments. Starts the next at a size, at an age, and when the day ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO

from celery_sqs_heartbeat.journal.layout import day_of, segment_path
from celery_sqs_heartbeat.journal.packing import Opener
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a segment is closed.

    Attributes:
        max_bytes: Largest size of its plain lines.
        max_age: Longest age, in seconds.
    """

    max_bytes: int = 8 << 20
    max_age: float = 300.0


class SegmentWriter:
    """The segments of one worker, one of which is open. For one thread.

    Args:
        clock: Monotonic seconds.
        first: The number of the first segment.

    Attributes:
        fault: The error of the last `write` or `rotate`, or None.
    """

    def __init__(
        self,
        root: Root,
        wid: str,
        rotation: Rotation,
        clock: Callable[[], float],
        *,
        opener: Opener = FileIO,
        first: int = 1,
    ) -> None:
        self._root = root
        self._wid = wid
        self._rotation = rotation
        self._clock = clock
        self._opener = opener
        self._numbers = itertools.count(first)
        self._segment: Segment | None = None
        self.fault: OSError | None = None

    def write(self, lines: Iterable[tuple[int, bytes]]) -> int:
        """Write lines, each with its time in microseconds. Return how many were written."""
        self.fault = None
        written = 0
        for day, batch in self._batches(lines):
            try:
                self._append(day, batch)
                written += len(batch)
            except OSError as error:
                self.fault = error
        return written

    def rotate_if_old(self) -> None:
        """Close the segment if it is old enough."""
        segment = self._segment
        if segment is not None and self._clock() >= segment.opened_at + self._rotation.max_age:
            self.rotate()

    def rotate(self) -> None:
        """Close the segment. The next line starts another."""
        self.fault = None
        self._close()

    def _batches(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, list[bytes]]]:
        """Yield batches of lines that each go into one segment, with its day."""
        day = self._segment.day if self._segment else ""
        size, batch = 0, list[bytes]()
        for ts, line in lines:
            # A late line stays with the lines that it came with.
            line_day = max(day, day_of(ts))
            if batch and (line_day != day or size + len(line) > self._rotation.max_bytes):
                yield day, batch
                size, batch = 0, []
            day = line_day
            batch.append(line)
            size += len(line)
        if batch:
            yield day, batch

    def _append(self, day: str, batch: Sequence[bytes]) -> None:
        size = sum(map(len, batch))
        segment = self._segment
        if segment and (segment.day != day or segment.size + size > self._rotation.max_bytes):
            self._close()
        if self._segment is None:
            path = segment_path(day, self._wid, next(self._numbers))
            self._segment = Segment(self._root, path, day, self._clock(), self._opener)
        try:
            self._segment.append(batch)
        except OSError as error:
            if self._segment.is_invalidated_by(error):
                self._close()
            raise

    def _close(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                segment.close()
            except OSError as error:
                self.fault = error
