"""Starts Spark on this machine, configured for small data, or uses an existing Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engine.java import use_java

#: Settings that the jobs need everywhere.
_JOBS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # A first, small map of groups is useless if most groups have few rows, as deliveries do.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}
#: A user of `report` sees only errors of Spark's log.
_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
_JAVA = f"-XX:+UseSerialGC -Duser.timezone=UTC -Dlog4j2.configurationFile={_LOGGING}"
#: On two cores the serial collector and smaller partitions gain a tenth each. Compiling only code
#: that runs four times as often as by Java's default, and inlining less, gains another tenth,
#: because a query lasts only seconds.
_COMPILED = "-XX:CompileThresholdScaling=4 -XX:FreqInlineSize=100"
_LOCAL = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    # The commands show their own progress.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Another 500 MB are resident: compiled code, classes, buffers.
    "spark.driver.memory": "1500m",
    "spark.driver.extraJavaOptions": f"{_JAVA} {_COMPILED}",
    "spark.sql.files.maxPartitionBytes": "32m",
    # Listing a journal's folders with a job, one task each, does not pay on a local disk.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Opening a segment takes less time than reading 4 MB, the default.
    "spark.sql.files.openCostInBytes": "256k",
    # Enough for some ten million events on one machine. The default, 200, is slow for few.
    "spark.sql.shuffle.partitions": "16",
}

#: A folder with at most this many bytes is small: some hundred thousand events, compressed.
SMALL_BYTES = 8_000_000
#: For a few thousand events, planning costs more than the work. If Spark compiles nothing, Java
#: little, and nothing is planned again between stages, a report takes half the time.
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

    It is on this machine, unless `spark-submit` has started this program, or `SPARK_REMOTE` names
    a Spark Connect server. Then the settings of machines, such as master and memory, are not
    changed.

    Args:
        conf: Overrides all other settings.
        source: Folder or URL of the journal or the tables. For a small folder, a session on this
            machine is configured for little data.

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
    """Return whether `spark-submit` configures the JVM."""
    submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in submit_args


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
