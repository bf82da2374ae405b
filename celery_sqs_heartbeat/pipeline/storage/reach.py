"""Where journals and tables are: in folders, or on S3."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.journal.fetching import fetched
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.settings.target import S3

#: Days beside those of a run whose folders may tell of them (`engine.jobs`).
_AROUND = 2


def spark_path(path: str) -> str:
    """Return a path as Spark has it: `s3a:` for `s3:`, without a slash at its end."""
    return (path.replace(S3, "s3a://", 1) if path.startswith(S3) else path).rstrip("/")


def is_out_of_reach(spark: SparkSession, path: str) -> bool:
    """Return whether the path is on S3, for which Spark on one machine has no connector.

    One that is written `s3a://` is for a connector that the user has installed.
    """
    return path.startswith(S3) and str(spark.conf.get("spark.master", "local")).startswith("local")


def refuse_out_of_reach(spark: SparkSession, path: str, what: str) -> None:
    """Let pass what is within reach.

    Args:
        what: What is at the path, in a word.

    Raises:
        PipelineError: It is not.
    """
    if is_out_of_reach(spark, path):
        raise PipelineError(
            f"the {what} {path!r} is on S3, which Spark on one machine has no connector for: "
            "give a folder, or run it on a cluster; with a connector of your own, write s3a://"
        )


@contextmanager
def within_reach(
    spark: SparkSession,
    journal: str,
    first: datetime.date | None,
    last: datetime.date | None,
    progress: Callable[[str], None],
) -> Iterator[str]:
    """Give a folder with the journal's days if it is out of reach; else the journal as it is.

    Args:
        spark: What is to read it.
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
