"""Starts Sail in this process."""

from __future__ import annotations

import os

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.errors import PipelineError

INSTALL = "pip install 'celery-sqs-heartbeat[sail]'"

_ENVIRONMENT = {
    # Its log lines on sessions and hints are for its developers.
    "RUST_LOG": "error",
    # A session ends when it is idle for this long. The default is 15 minutes, and Spark may take
    # longer to read a journal that Sail can't read.
    "SAIL_SPARK__SESSION_TIMEOUT_SECS": "86400",
    # The server is on this machine, so no proxy must be used.
    "no_grpc_proxy": "127.0.0.1",
}

#: PySpark notes the caller of each of its functions, for messages of Spark that Sail does not have.
#: That searches for IPython three thousand times in a report, which takes a tenth of its time.
_DEBUGGING = "spark.python.sql.dataFrameDebugging.enabled"

#: A server stops when nothing refers to it.
_servers: list[object] = []


def new_session(name: str, source: str | None = None) -> SparkSession:
    """Return a session of a Sail server on loopback that ends with this process.

    The server has no authentication: while it runs, anyone with an account on this machine can use
    it with the rights of this process.

    Args:
        name: The program's name, which Sail does not use.
        source: The data's place. Sail plans in the same way for little and much data.

    Raises:
        PipelineError: Sail is not installed, does not start, or does not work with this PySpark.
    """
    del name, source
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        from pysail.spark import SparkConnectServer
    except ImportError as error:
        raise PipelineError(f"the engine sail needs pysail ({error}): {INSTALL}") from None
    try:
        server = SparkConnectServer("127.0.0.1", 0)
        server.start(background=True)
    except RuntimeError as error:
        # Sail reads its settings from the environment.
        raise PipelineError(
            f"the engine sail does not start ({error}): correct or unset its variables SAIL_..., "
            "or use --engine spark"
        ) from None
    _servers.append(server)
    host, port = server.listening_address
    try:
        return (
            SparkSession.builder.remote(f"sc://{host}:{port}")
            .config("spark.sql.session.timeZone", "UTC")
            .config(_DEBUGGING, "false")
            .getOrCreate()
        )
    except (ImportError, PySparkException) as error:
        raise PipelineError(
            f"the engine sail can't work with this PySpark ({error}): {INSTALL}, "
            "which installs one that does"
        ) from None
