"""Reports new duplicates, each as a line of JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: The columns that identify a pair of executions.
_KEYS = ("queue", "msg", "first_rc", "second_rc", "second_wid")
#: Most duplicates of one batch that are reported. The table has all.
_MOST = 1000


class Alerts:
    """Reports each duplicate once, even over restarts: a folder keeps what was reported.

    A duplicate that was reported just before the process was killed may be reported again.
    """

    def __init__(self, spark: SparkSession, folder: str, tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._folder = folder
        self._tell = tell

    def tell(self, duplicates: DataFrame, batch: int) -> None:
        """Report the new ones, and record them under the batch."""
        known = self._reported().where(F.col("batch") != batch)
        same = [F.col(f"new.{key}").eqNullSafe(F.col(f"known.{key}")) for key in _KEYS]
        new = duplicates.alias("new").join(known.alias("known"), same, "left_anti")
        rows = new.orderBy("second_started").limit(_MOST).collect()
        for row in rows:
            self._tell(json.dumps({"alert": "duplicate", **row.asDict()}, default=_plain))
        if rows:
            keys = self._spark.createDataFrame(rows, duplicates.schema).select(*_KEYS)
            keys.write.mode("overwrite").parquet(f"{self._folder}/batch={batch}")

    def _reported(self) -> DataFrame:
        schema = "queue string, msg string, first_rc int, second_rc int, second_wid string"
        try:
            frame = self._spark.read.schema(f"{schema}, batch bigint").parquet(self._folder)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self._spark.createDataFrame([], f"{schema}, batch bigint")
        return frame


def _plain(value: object) -> str:
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"duplicates have no {type(value).__name__}")
