"""The columns that lines have besides the fields of events, and what they say."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

CORRUPT, FILE, DAY, TORN = "_corrupt", "_file", "_day", "_torn"
#: The worker's folder that the segment is in; empty where there is none.
FOLDER = "_folder"
#: The first and the last day that are wanted, or null: on every line, as a constant.
FIRST, LAST = "_first", "_last"

#: The path of a segment below its journal's folder.
RELATIVE = r"dt=[^/]+/worker=[^/]+/[^/]+$"


def is_wanted(day: str) -> Column:
    """Return whether the day in this column is one of those that lines were asked for."""
    return F.coalesce(F.col(day) >= F.col(FIRST), F.lit(True)) & F.coalesce(
        F.col(day) <= F.col(LAST), F.lit(True)
    )


def relative_path() -> Column:
    """Return the path of the segment that a row is read from, below its journal's folder."""
    return F.regexp_extract("_metadata.file_path", RELATIVE, 0).alias(FILE)
