"""Marks the frames that a table's plan reads more than once."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

#: Returns the same rows, and may keep them until the table is written. Otherwise they are computed
#: each time.
Keep = Callable[[DataFrame], DataFrame]


def unchanged(frame: DataFrame) -> DataFrame:
    """Return the frame itself."""
    return frame
