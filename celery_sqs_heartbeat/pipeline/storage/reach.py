"""Decides whether Spark can reach a path on S3, and copies journals that it can't reach."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.journal.reading import fetched
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.settings.address import S3

#: Days before and after a run whose folders may have lines of its days (`engine.jobs`).
_AROUND = 2


def spark_path(path: str) -> str:
    """Return a path in Spark's form: `s3a:` instead of `s3:`, without a slash at the end."""
    return (path.replace(S3, "s3a://", 1) if path.startswith(S3) else path).rstrip("/")


def is_out_of_reach(spark: SparkSession, path: str) -> bool:
    """Return whether the path is on S3, for which Spark on one machine has no connector.

    A path with `s3a://` means a connector that the user has installed.
    """
    return path.startswith(S3) and str(spark.conf.get("spark.master", "local")).startswith("local")


def refuse_out_of_reach(spark: SparkSession, path: str, what: str) -> None:
    """Refuse a path that Spark can't reach.

    Args:
        what: The path's role, in one word.

    Raises:
        PipelineError: Spark can't reach it.
    """
    if is_out_of_reach(spark, path):
        raise PipelineError(
            f"the {what} {path!r} is on S3, for which Spark on one machine has no connector: "
            "give a folder, or run it on a cluster; if you have installed a connector, write s3a://"
        )


@contextmanager
def within_reach(
    spark: SparkSession,
    journal: str,
    first: datetime.date | None,
    last: datetime.date | None,
    progress: Callable[[str], None],
) -> Iterator[str]:
    """Provide a folder with a copy of the journal's days if it is out of reach, else the journal.

    Args:
        spark: The session that reads it.
        first: The first day of a run; None for all.
        last: The last one.

    Raises:
        FetchError: It can't be copied.
    """
    if not is_out_of_reach(spark, journal):
        yield journal
        return
    progress("copying the journal from S3")
    with fetched(journal, first, last, _AROUND) as folder:
        yield str(folder)
