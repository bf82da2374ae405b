"""The columns that lines have in addition to the fields of events."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

CORRUPT, FILE, DAY, TORN = "_corrupt", "_file", "_day", "_torn"
#: The worker's folder of the segment, or empty.
FOLDER = "_folder"
#: The first and the last requested day, or null. Each line has them, as constants.
FIRST, LAST = "_first", "_last"

#: The path of a segment relative to its journal's folder.
RELATIVE = r"dt=[^/]+/worker=[^/]+/[^/]+$"


def is_wanted(day: str) -> Column:
    """Return whether the day in this column is a requested day."""
    return F.coalesce(F.col(day) >= F.col(FIRST), F.lit(True)) & F.coalesce(
        F.col(day) <= F.col(LAST), F.lit(True)
    )


def relative_path() -> Column:
    """Return the path of a row's segment, relative to its journal's folder."""
    return F.regexp_extract("_metadata.file_path", RELATIVE, 0).alias(FILE)
