"""Starts Sail in this process."""

from __future__ import annotations

import os

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.errors import PipelineError

INSTALL = "pip install 'celery-sqs-heartbeat[sail]'"

_ENVIRONMENT = {
    # What it tells of each session and of each hint is for its developers.
    "RUST_LOG": "error",
    # A session ends when it is idle for so long, by default for 15 minutes: Spark may take longer
    # to read a journal that Sail can't.
    "SAIL_SPARK__SESSION_TIMEOUT_SECS": "86400",
    # The server is on this machine, whatever proxy leads out of it.
    "no_grpc_proxy": "127.0.0.1",
}

#: A server stops when nothing refers to it any more.
_servers: list[object] = []


def new_session(name: str, source: str | None = None) -> SparkSession:
    """Return a session of a Sail server on loopback that ends with this process.

    The server asks no one who they are: anyone with an account on this machine can use it, with
    the rights of this process, for as long as it lives.

    Args:
        name: Of the program; Sail has no use for it.
        source: What it is for; Sail plans alike for little and for much.

    Raises:
        PipelineError: Sail is not installed, or not with the PySpark that it speaks with.
    """
    del name, source
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        from pysail.spark import SparkConnectServer
    except ImportError as error:
        raise PipelineError(f"the engine sail needs pysail ({error}): {INSTALL}") from None
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _servers.append(server)
    host, port = server.listening_address
    try:
        return (
            SparkSession.builder.remote(f"sc://{host}:{port}")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
    except (ImportError, PySparkException) as error:
        raise PipelineError(
            f"the engine sail can't work with this PySpark ({error}): {INSTALL}, "
            "which brings one that fits"
        ) from None
