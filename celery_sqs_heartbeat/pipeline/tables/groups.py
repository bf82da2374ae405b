"""The message groups of deliveries. They are not folded, because strings double its time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: The columns that identify a delivery.
_DELIVERY = ["queue", "msg", "dlv"]
_GROUP = ("grp", "sn")


def with_groups(deliveries: DataFrame, events: DataFrame) -> DataFrame:
    """Add `grp` and `sn` from the line of a receive.

    In most fleets, and in older versions, no line has them. Then only Parquet's statistics are
    read.
    """
    said = events.where(F.col("grp").isNotNull()).select(*_DELIVERY, *_GROUP)
    if said.isEmpty():
        return deliveries.withColumns({name: F.lit(None).cast("string") for name in _GROUP})
    groups = said.groupBy(*_DELIVERY).agg(*(F.max(name).alias(name) for name in _GROUP))
    return deliveries.join(groups, _DELIVERY, "left")
