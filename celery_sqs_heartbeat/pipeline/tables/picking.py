"""Selects a table's rows by a key, so that other rows are not shuffled."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: At most this many rows' keys are broadcast: 8 bytes each, some tens of megabytes in Spark. If
#: there are more, for example if half of a large fleet's messages are received again, both sides
#: are shuffled.
MOST_BROADCAST = 1_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """Values of one column, each as a 64-bit hash.

    Attributes:
        column: The column's name in the frame that they are from.
        hashes: Their hashes, in a column `hash`.
    """

    column: str
    hashes: DataFrame

    def only(self, rows: DataFrame, column: str | None = None) -> DataFrame:
        """Return the rows that have one of the keys; very rarely another row, too.

        Args:
            column: The column's name in the rows, if it differs.
        """
        return rows.join(self.hashes, F.xxhash64(column or self.column) == F.col("hash"), "semi")


def keys_of(rows: DataFrame, column: str, most: int = MOST_BROADCAST) -> Keys:
    """Return the values of a column.

    Args:
        rows: Counted, so this must be cheap.
        most: If there are more rows, the keys are not broadcast.
    """
    hashes = rows.select(F.xxhash64(column).alias("hash")).distinct()
    return Keys(column, hashes if rows.count() > most else F.broadcast(hashes))
