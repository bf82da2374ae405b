"""The message groups of deliveries, kept out of their fold: strings would double its time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: What tells a delivery.
_DELIVERY = ["queue", "msg", "dlv"]
_GROUP = ("grp", "sn")


def with_groups(deliveries: DataFrame, events: DataFrame) -> DataFrame:
    """Add `grp` and `sn`, which the line of a receive says.

    Where no line says any, as in most fleets and of older versions, the look at Parquet's
    statistics is all that it takes.
    """
    said = events.where(F.col("grp").isNotNull()).select(*_DELIVERY, *_GROUP)
    if said.isEmpty():
        return deliveries.withColumns({name: F.lit(None).cast("string") for name in _GROUP})
    groups = said.groupBy(*_DELIVERY).agg(*(F.max(name).alias(name) for name in _GROUP))
    return deliveries.join(groups, _DELIVERY, "left")
