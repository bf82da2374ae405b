"""Finds the highest level from an ordered array of changes, without a window over rows."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F


def highest(changes: str, step: Callable[[Column], Column]) -> Column:
    """Return the highest level that a column's changes reach, starting from 0.

    Args:
        changes: Name of a column of arrays, each in order.
        step: Returns how much a change adds to the level.
    """

    def after(level: Column, change: Column) -> Column:
        now = level["now"] + step(change)
        return _level(now, F.greatest(level["highest"], now))

    return F.aggregate(changes, _level(0, 0), after)["highest"]


def _level(now: Column | int, highest: Column | int) -> Column:
    both = {"now": now, "highest": highest}
    return F.struct(*(F.lit(value).cast("int").alias(name) for name, value in both.items()))
