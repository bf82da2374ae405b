"""Keeps frames that are read more than once while one table is written."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

#: Makes a frame from rows. From some workers' rows it makes a part of the frame.
Make = Callable[[DataFrame], DataFrame]


class FrameCache:
    """Frames that Spark keeps until the context ends."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def __enter__(self) -> FrameCache:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._frames:
            frame.unpersist()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return a frame that is computed once, however often it is read."""
        self._frames.append(frame.persist())
        return frame

    def in_batches(self, make: Make, rows: DataFrame, workers: DataFrame) -> DataFrame:
        """Return the frame that is made from the rows.

        Spark makes it from all rows at once: it computes a shuffle only once, and writes what does
        not fit into memory to the disk.

        Args:
            workers: The rows' workers, with their `lines`.
        """
        del workers
        return make(rows)
