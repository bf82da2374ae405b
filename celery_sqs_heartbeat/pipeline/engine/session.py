"""Starts Spark on this machine, configured for small data, or uses an existing Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.engine.class_archive import archive_options
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
_OPTIONS = "spark.driver.extraJavaOptions"
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
    _OPTIONS: f"{_JAVA} {_COMPILED}",
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
#: For that many events, planning costs more than the work. If Java compiles little, nothing is
#: planned again between stages, and a query is one task, a report takes half the time.
_FOR_LITTLE = {
    _OPTIONS: f"{_JAVA} -XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
    # Broadcasts are jobs of their own. In one partition, a join needs neither them nor a shuffle.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.shuffle.partitions": "1",
    # Checks and descriptions of plans, for Spark's developers and its UI.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "100",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
}

#: Below this, in bytes, Spark takes longer to compile its plans than to interpret them: some twenty
#: thousand events, compressed. With 3,000 events, compiling takes 9 CPU seconds longer, and with
#: 52,000 events interpreting does.
TINY_BYTES = 1_000_000
_INTERPRETED = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
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
    if not is_on_this_machine():
        return _configured(SparkSession.builder, {**_JOBS, **(conf or {})}).getOrCreate()
    builder = SparkSession.builder.appName(name)
    settings = {**_LOCAL, **_JOBS, **_fitting(source)}
    with_archive = f"{settings[_OPTIONS]} {archive_options(Path(os.environ.get('JAVA_HOME', '')))}"
    try:
        return _configured(
            builder, {**settings, _OPTIONS: with_archive, **(conf or {})}
        ).getOrCreate()
    except PySparkRuntimeError:
        # Java has not started. Without an archive, it prints why.
        return _configured(builder, {**settings, **(conf or {})}).getOrCreate()


def _fitting(source: str | None) -> Mapping[str, str]:
    """Return the settings for the amount of data."""
    if source is None or not is_small(Path(source)):
        return {}
    is_tiny = is_small(Path(source), TINY_BYTES)
    return {**_FOR_LITTLE, **(_INTERPRETED if is_tiny else {})}


def is_small(folder: Path, most: int = SMALL_BYTES) -> bool:
    """Return whether it is a folder, with at most that many bytes in its files."""
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return folder.is_dir() and all(total <= most for total in accumulate(sizes))


def is_on_this_machine() -> bool:
    """Return whether `new_session` starts Spark in a JVM of this process, with its own settings."""
    return not os.environ.get("SPARK_REMOTE") and not _is_submitted()


def _is_submitted() -> bool:
    """Return whether `spark-submit` configures the JVM."""
    submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in submit_args


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
