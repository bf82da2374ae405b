"""Starts Spark on this machine, or uses the Spark that the environment names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.faults import PipelineError
from celery_sqs_heartbeat.settings.address import S3

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
    """Make Spark use a Java that is new enough: that of `JAVA_HOME`, or else that on the `PATH`.

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
    raise PipelineError(
        f"Spark needs Java {MIN_JAVA} or later: {'; '.join(tried)}. Install one, for example with "
        f"`apt-get install openjdk-{MIN_JAVA}-jre-headless`, `brew install openjdk@{MIN_JAVA}` or "
        "from https://adoptium.net, and set JAVA_HOME to its folder"
    )


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
