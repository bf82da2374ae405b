"""Provides the tables that exist only while a report is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engine.session import is_on_this_machine, is_small
from celery_sqs_heartbeat.pipeline.storage.memory import MemoryWarehouse
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse

Open = Callable[[SparkSession, str], Warehouse]


def in_files(opened: Open) -> Callable[[SparkSession, str], AbstractContextManager[Warehouse]]:
    """Return a provider of tables in a temporary folder."""

    @contextmanager
    def provided(spark: SparkSession, source: str) -> Iterator[Warehouse]:
        del source
        with TemporaryDirectory(prefix="sqs-heartbeat-") as folder:
            yield opened(spark, folder)

    return provided


@contextmanager
def by_size(spark: SparkSession, source: str) -> Iterator[Warehouse]:
    """Provide tables in Spark's memory for a small journal on this machine, else in files."""
    if is_on_this_machine() and is_small(Path(source)):
        yield MemoryWarehouse(spark)
    else:
        with in_files(Warehouse)(spark, source) as warehouse:
            yield warehouse
