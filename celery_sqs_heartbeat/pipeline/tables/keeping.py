"""Says of a table's plan which frames it reads more than once."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

#: Returns the same rows, which may be kept until the table is written: without that, they are
#: computed each time.
Keep = Callable[[DataFrame], DataFrame]


def as_it_is(frame: DataFrame) -> DataFrame:
    """Return the frame itself."""
    return frame
