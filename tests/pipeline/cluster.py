"""A Spark cluster of processes: a master and workers, each with an executor of one core."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from celery_sqs_heartbeat.pipeline.engine.java import use_java
from tests.support.process import ProcessContainer
from tests.support.waiting import SPARK_PATIENCE, wait_until

_DEPLOY = "org.apache.spark.deploy"
_SPARK = Path(pyspark.__file__).parent
#: Of the processes that start executors, which have memory of their own.
_DAEMON_MEMORY = "256m"
#: A slow machine is not lost. The master learns of a lost one by its connection.
_DAEMON_OPTIONS = " ".join(
    f"-Dspark.{name}.timeout={SPARK_PATIENCE:.0f}" for name in ("worker", "network")
)
_URL = re.compile(rb"Starting Spark master at (spark://\S+)")


@dataclass(frozen=True)
class Cluster:
    """What a program needs to know about it."""

    url: str
    workers: list[ProcessContainer]

    @property
    def registered(self) -> int:
        """How many workers the master takes for alive."""
        return sum(b"Successfully registered" in worker.logs() for worker in self.workers)


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Run a cluster whose processes talk over loopback, and end all of it.

    Args:
        folder: For their logs, and for the executors' files.
        workers: How many. Each is a process group with its executors: ending it simulates the
            loss of a machine.
    """
    use_java()
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
        "SPARK_HOME": str(_SPARK),
    }
    started: list[ProcessContainer] = []
    try:
        master = _start("master", [f"{_DEPLOY}.master.Master", "--port", "0"], env, folder)
        started.append(master)
        wait_until(
            lambda: _URL.search(master.logs()) or master.exit_code is not None, SPARK_PATIENCE
        )
        found = _URL.search(master.logs())
        assert found, master.logs().decode()
        url = found[1].decode()
        for number in range(workers):
            arguments = [f"{_DEPLOY}.worker.Worker", "--cores", "1", "--memory", "1g"]
            arguments += ["--work-dir", str(folder / f"work-{number}"), url]
            started.append(_start(f"worker-{number}", arguments, env, folder))
        made = Cluster(url, started[1:])
        wait_until(lambda: made.registered == workers, SPARK_PATIENCE)
        yield made
    finally:
        for process in reversed(started):
            process.end()


def _start(
    name: str, arguments: list[str], env: Mapping[str, str], folder: Path
) -> ProcessContainer:
    command = [str(_SPARK / "bin" / "spark-class"), *arguments]
    command += ["--host", "127.0.0.1", "--webui-port", "0"]
    return ProcessContainer(name, command, env=env, cwd=folder, log_dir=folder)
