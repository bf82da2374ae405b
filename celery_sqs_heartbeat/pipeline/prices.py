"""Prices in US dollars."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

#: A request to a standard queue: $0.40 per million, up to 100 billion a month, in us-east-1
#: (list price of Amazon SQS). The free first million of each month is ignored.
STANDARD_USD = 0.40 / 1_000_000
#: A request to a FIFO queue, likewise.
FIFO_USD = 0.50 / 1_000_000
#: The end of a FIFO queue's name.
FIFO_SUFFIX = ".fifo"
#: A second of one virtual CPU with 2 GB: $0.04048 and 2 x $0.004445 an hour
#: (list price of AWS Fargate, Linux on x86, us-east-1).
COMPUTE_SECOND_USD = (0.04048 + 2 * 0.004445) / 3600


def price_of(queue: str) -> float:
    """Return the price of a request to a queue."""
    return FIFO_USD if queue.endswith(FIFO_SUFFIX) else STANDARD_USD


def price_column(queue: Column) -> Column:
    """Return the price of a request to each queue of a column."""
    return F.when(queue.endswith(FIFO_SUFFIX), F.lit(FIFO_USD)).otherwise(F.lit(STANDARD_USD))
