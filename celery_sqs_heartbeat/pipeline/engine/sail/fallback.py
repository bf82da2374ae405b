"""Lets Spark read a journal that Sail can't read, in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.common.exits import FOUND, REFUSED
from celery_sqs_heartbeat.pipeline.engine.faults import cause_of
from celery_sqs_heartbeat.pipeline.errors import PipelineError

#: The start of a command's last line, if it fails.
_REFUSAL = "Error: "
#: Variables that make a PySpark process a client.
_REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE")


def read_by_spark(journal: Path, warehouse: str, run: Days, before: Exception) -> None:
    """Run the command `events`, which writes `events` and `rejects`.

    Args:
        before: The error of Sail.

    Raises:
        PipelineError: It failed.
    """
    command = [sys.executable, "-m", "celery_sqs_heartbeat.pipeline", "events"]
    options = {
        "journal": journal,
        "warehouse": warehouse,
        "from": run.first,
        "to": run.last,
    }
    done = subprocess.run(  # noqa: S603
        [*command, *(f"--{name}={value}" for name, value in options.items())],
        env={name: value for name, value in os.environ.items() if name not in _REMOTE},
        capture_output=True,
        text=True,
        check=False,
    )
    # It also succeeds if there is no message, and reports that at the end.
    if done.returncode and not (done.returncode == FOUND and done.stdout):
        last = (done.stderr.strip().splitlines() or [""])[-1]
        if done.returncode == REFUSED and last.startswith(_REFUSAL):
            raise PipelineError(last.removeprefix(_REFUSAL))
        raise PipelineError(
            f"neither Sail nor Spark could make events of {journal}. Sail: {cause_of(before)}. "
            f"Spark exited with {done.returncode}: {last}"
        )
