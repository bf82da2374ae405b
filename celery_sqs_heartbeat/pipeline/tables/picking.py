"""Picks the rows that a table is about by a key, so that the others get into no shuffle."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: Rows whose keys are broadcast, at the most: 8 bytes of each, some tens of megabytes as Spark
#: holds them. Of more, as when half of a large fleet's messages come back, both sides are
#: shuffled.
MOST_BROADCAST = 1_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """Values of one column. 64 bits of a hash stand for each.

    Attributes:
        column: Its name in the frame that they are from.
        hashes: Their hashes, in a column `hash`.
    """

    column: str
    hashes: DataFrame

    def only(self, rows: DataFrame, column: str | None = None) -> DataFrame:
        """Return the rows that have one of the keys; once in a great while one more.

        Args:
            column: The name of the column there, if it is another.
        """
        return rows.join(self.hashes, F.xxhash64(column or self.column) == F.col("hash"), "semi")


def keys_of(rows: DataFrame, column: str, most: int = MOST_BROADCAST) -> Keys:
    """Return the values of a column.

    Args:
        rows: Are counted: let that be cheap.
        most: Of more rows the keys are not broadcast.
    """
    hashes = rows.select(F.xxhash64(column).alias("hash")).distinct()
    return Keys(column, hashes if rows.count() > most else F.broadcast(hashes))
