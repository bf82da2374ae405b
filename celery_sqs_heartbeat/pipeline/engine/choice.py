"""Chooses the engine of a command, before PySpark is imported: Sail where it can do the job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import click

from celery_sqs_heartbeat.journal.checking import local_folder
from celery_sqs_heartbeat.pipeline.options import AUTO, SAIL, SPARK
from celery_sqs_heartbeat.settings.address import S3

_TITLES = {SPARK: "Spark", SAIL: "Sail"}
#: The first PySpark that Sail does not work with, as in the extra `sail`.
_TOO_NEW = (4, 3)
#: What PySpark needs as a client of Sail.
_OF_CLIENT = ("grpc", "pandas", "pyarrow")
#: Distributions that contain PySpark.
_PYSPARKS = ("pyspark", "pyspark-client")
#: Characters that Sail reads as a pattern in a path.
PATTERN = "*?[]{}"


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why it was chosen; without a reason if the user named it."""

    engine: str
    reason: str = ""

    @property
    def is_here(self) -> bool | None:
        """Whether it can only work on this machine; None if that depends on Spark."""
        return self.engine == SAIL or None

    def say(self) -> None:
        """Say on standard error which engine is used and why, unless the user named it."""
        if self.reason:
            click.echo(f"Using {_TITLES[self.engine]}, because {self.reason}.", err=True)


def choose(asked: str, source: str, warehouse: str | None = None) -> Choice:
    """Return the engine for a command.

    Args:
        asked: The value of `--engine`.
        source: The journal or the tables to read.
        warehouse: The tables to write, if any.
    """
    if asked != AUTO:
        return Choice(asked)
    against = next(_against_sail(source, warehouse), None)
    if against is not None:
        return Choice(SPARK, against)
    return Choice(SAIL, "it is installed and can do this on one machine")


def _against_sail(source: str, warehouse: str | None) -> Iterator[str]:
    """Yield why Sail can't do it, the reason that matters most first."""
    if find_spec("pysail") is None:
        yield "Sail, which is faster on one machine, is not installed"
    if os.environ.get("SPARK_REMOTE"):
        yield "SPARK_REMOTE names a Spark server"
    if "PYSPARK_GATEWAY_PORT" in os.environ or "PYSPARK_SUBMIT_ARGS" in os.environ:
        yield "spark-submit has configured it"
    for what, path in (("data", source), ("warehouse", warehouse)):
        folder = None if path is None else local_folder(path)
        # A journal on S3 is copied first.
        if path is not None and folder is None and not (what == "data" and path.startswith(S3)):
            yield f"the {what} is not in a folder of this machine"
        if folder is not None and set(str(folder.resolve())) & set(PATTERN):
            yield f"Sail reads one of {' '.join(PATTERN)} in the path of the {what} as a pattern"
    installed = _pyspark_version()
    if installed is not None and installed >= _TOO_NEW:
        has, last = (".".join(map(str, each)) for each in (installed, (_TOO_NEW[0], 2)))
        yield f"Sail works with PySpark up to {last}, and {has} is installed"
    if missing := [name for name in _OF_CLIENT if find_spec(name) is None]:
        yield f"Sail needs {', '.join(missing)}, which is not installed"


def _pyspark_version() -> tuple[int, int] | None:
    for name in _PYSPARKS:
        try:
            match = re.match(r"(\d+)\.(\d+)", version(name))
        except PackageNotFoundError:
            continue
        return (int(match[1]), int(match[2])) if match else None
    return None
