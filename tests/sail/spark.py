"""Spark, whose tables are compared with Sail's: one process for all tests.

It is not in the process of the tests, where PySpark is a client of Sail. It has users' settings.

python -m tests.sail.spark
"""

from __future__ import annotations

import json
import sys

from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK

MADE = "made"


def main() -> None:
    """Make tables of a journal for each line of the input: `[journal, warehouse, which]`."""
    engine = engine_of(SPARK)
    spark = engine.start("compared")
    makes = {"run": engine.build, "events": engine.read_journal}
    for line in sys.stdin:
        journal, warehouse, which = json.loads(line)
        makes[which](spark, journal, warehouse)
        sys.stdout.write(f"{MADE}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
