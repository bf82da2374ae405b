"""Makes frames of rows that Python has, without a process for a few rows.

Spark's `createDataFrame` starts a Python process beside the JVM, which takes two CPU seconds. A
JSON text in the plan takes some milliseconds, but Spark may print it whenever a plan changes. A
remote session needs no such process, and another engine may round numbers of a JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: More rows are no longer a small part of a plan, and worth a process.
MOST_IN_PLAN = 1_000


def frame_of(spark: SparkSession, rows: Sequence[Mapping[str, Any]], ddl: str) -> DataFrame:
    """Return a frame of rows.

    Args:
        rows: Values by column. Keys of maps are texts, and days are `datetime.date`.
        ddl: The columns, in Spark's DDL.
    """
    is_remote = "connect" in type(spark).__module__
    if is_remote or len(rows) > MOST_IN_PLAN:
        return spark.createDataFrame(rows, ddl)
    text = F.lit(json.dumps(rows, default=str))
    parsed = F.from_json(text, f"array<struct<{ddl}>>", {"mode": "FAILFAST"})
    frame = spark.range(1).select(F.inline(parsed))
    # Spark leaves out what is joined with a frame that is certainly empty.
    return frame if rows else frame.where(F.lit(False))
