"""Picks the rows of the messages that a table is about, so that the others get into no shuffle."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: Attempts whose messages are broadcast, at the most: 8 bytes of each, some tens of megabytes as
#: Spark holds them. Of more, as when half of a large fleet's messages come back, both sides are
#: shuffled.
MOST_BROADCAST = 1_000_000


def messages_of(attempts: DataFrame, most: int = MOST_BROADCAST) -> DataFrame:
    """Return the messages of some attempts, for `only`.

    Args:
        attempts: Are counted: let that be cheap.
        most: Of more attempts the messages are not broadcast.
    """
    messages = attempts.select(F.xxhash64("msg").alias("hash")).distinct()
    return messages if attempts.count() > most else F.broadcast(messages)


def only(messages: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the rows of these messages.

    Messages are told by 64 bits of a hash: once in a great while one more is among them.
    """
    return rows.join(messages, F.xxhash64("msg") == F.col("hash"), "left_semi")
