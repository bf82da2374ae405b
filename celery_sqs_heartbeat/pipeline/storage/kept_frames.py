"""Keeps what is read more than once while one table is written."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

#: Makes a frame of rows. Of some workers' rows it makes a part of the frame.
Make = Callable[[DataFrame], DataFrame]


class Kept:
    """What Spark keeps until the context ends."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._frames:
            frame.unpersist()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return a frame that is computed once, however often it is read."""
        self._frames.append(frame.persist())
        return frame

    def in_parts(self, make: Make, rows: DataFrame, workers: DataFrame) -> DataFrame:
        """Return what is made of the rows.

        Spark makes it of all at once: it computes a shuffle once, and what does not fit into
        memory it writes to disk.

        Args:
            workers: The rows' workers, with their `lines`.
        """
        del workers
        return make(rows)
