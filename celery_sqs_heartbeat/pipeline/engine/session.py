"""Starts Spark on this machine, with what such small data needs, or takes the one it is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engine.java import use_java

#: What the jobs rely on, wherever they run.
_JOBS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # A first, small map of groups is in vain where most are few rows, as deliveries are.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}
#: A user of `report` sees no log lines of Spark's but errors.
_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
_JAVA = f"-XX:+UseSerialGC -Duser.timezone=UTC -Dlog4j2.configurationFile={_LOGGING}"
#: On two cores the serial collector and smaller partitions gain a tenth each. So does it to compile
#: only what runs four times as often as Java's default asks for, and to inline less: a query lives
#: for seconds.
_COMPILED = "-XX:CompileThresholdScaling=4 -XX:FreqInlineSize=100"
_LOCAL = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    # The commands show a progress of their own.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Some 500 MB more are resident: compiled code, classes, buffers.
    "spark.driver.memory": "1500m",
    "spark.driver.extraJavaOptions": f"{_JAVA} {_COMPILED}",
    "spark.sql.files.maxPartitionBytes": "32m",
    # To list a journal's folders by a job, a task for each, is for other disks than this one.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Nor does it take as long to open a segment as to read 4 MB, the default.
    "spark.sql.files.openCostInBytes": "256k",
    # Enough for some ten million events on one machine; 200, the default, is slow for few.
    "spark.sql.shuffle.partitions": "16",
}

#: A folder with no more bytes is small: it tells of some hundred thousand events, compressed.
SMALL_BYTES = 8_000_000
#: Of a few thousand events the plans cost more than the work: with nothing compiled by Spark, not
#: much by Java, and nothing planned again between stages, a report takes half the time.
_FOR_LITTLE = {
    "spark.driver.extraJavaOptions": f"{_JAVA} -XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}


def new_session(
    name: str, conf: Mapping[str, str] | None = None, source: str | None = None
) -> SparkSession:
    """Return a Spark session.

    That is one on this machine, unless `spark-submit` has started this program, or
    `SPARK_REMOTE` names a Spark Connect server: then everything that is about the machines, as
    the master and the memory, stays as it is there.

    Args:
        conf: Wins over everything.
        source: Folder or URL of the journal or the tables that it is for. For a small folder a
            session on this machine plans for little.

    Raises:
        PipelineError: Spark would start here, and there is no Java for it.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = os.environ.get("SPARK_REMOTE", "")
    is_here = not remote or remote.startswith("local")
    if is_here and not _is_submitted():
        use_java()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if remote or _is_submitted():
        return _configured(SparkSession.builder, {**_JOBS, **(conf or {})}).getOrCreate()
    builder = SparkSession.builder.appName(name)
    fitting = _FOR_LITTLE if source is not None and _is_small(Path(source)) else {}
    return _configured(builder, {**_LOCAL, **_JOBS, **fitting, **(conf or {})}).getOrCreate()


def _is_small(folder: Path) -> bool:
    """Return whether it is a folder, with few bytes in its files."""
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return folder.is_dir() and all(total <= SMALL_BYTES for total in accumulate(sizes))


def _is_submitted() -> bool:
    """Return whether a JVM that `spark-submit` configured is there, or is going to be."""
    submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in submit_args


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
