"""The error of an engine that fails is one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from celery_sqs_heartbeat.common.exits import FOUND, REFUSED
from celery_sqs_heartbeat.pipeline import jobs
from celery_sqs_heartbeat.pipeline.__main__ import main
from celery_sqs_heartbeat.pipeline.faults import PipelineError, cause_of, spark_faults
from celery_sqs_heartbeat.pipeline.jobs import STEPS
from celery_sqs_heartbeat.pipeline.schema import WORKERS
from tests.pipeline.cheap import JAVA_VARIABLE
from tests.pipeline.journals import write_segment
from tests.support.markdown import ROOT
from tests.support.waiting import SPARK_PATIENCE

STACK = """An error occurred while calling o173.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/w.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(Q.scala:7)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
Caused by: java.io.IOException: {}
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 17 more
"""


class Java:
    """A Java exception and its causes, as py4j shows them."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def toString(self) -> str:
        return self._texts[0]

    def getCause(self) -> Java | None:
        return Java(*self._texts[1:]) if self._texts[1:] else None


def of_java(*texts: str) -> PySparkException:
    error = PySparkException("Job aborted.")
    error._origin = Java(*texts)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (PySparkException("a\n  b"), "a b"),
        (PySparkException(STACK.format("No space left on device")), "No space left on device"),
        (of_java("o.a.Exception: a", "java.io.IOException: Disk quota exceeded"), "Disk quota exc"),
        (of_java(STACK.format("Permission denied")), "Permission denied"),
        (PySparkException("x" * 900), "x" * 300 + "…"),
        (OSError(28, "No space left on device", "/t"), "[Errno 28] No space left on device: '/t'"),
    ],
)
def test_the_first_cause_is_reported_in_one_line(error: Exception, cause: str) -> None:
    assert cause_of(error).startswith(cause)
    assert "\n" not in cause_of(error)


@pytest.mark.parametrize(
    ("cause", "way_out"),
    [
        ("No space left on device", "make room"),
        ("No space left on device (os error 28)", "make room"),
        ("Mkdirs failed to create file:/w/events", "may write to"),
        ("[CONFLICTING_DIRECTORY_STRUCTURES] Conflicting", "move away everything except dt="),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file:/w/x", "build their days again"),
        ("Answer from Java side is empty", "out of memory"),
        ("No usable temporary directory found in ['/tmp']", "set TMPDIR"),
        ("[SOMETHING_ELSE]", "SQS_HEARTBEAT_DEBUG=1 shows the whole"),
    ],
)
def test_the_line_names_what_failed_and_the_way_out(cause: str, way_out: str) -> None:
    with pytest.raises(PipelineError) as raised, spark_faults("report on 'w'"):
        raise PySparkException(STACK.format(cause))
    told = str(raised.value)
    assert told.startswith(f"can't report on 'w': {cause}; ")
    assert way_out in told


def test_the_whole_error_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQS_HEARTBEAT_DEBUG", "1")
    with pytest.raises(PySparkException, match="DAGScheduler"), spark_faults("report on 'w'"):
        raise PySparkException(STACK.format("Permission denied"))


@pytest.mark.parametrize("error", [PipelineError("told before"), KeyError("a bug")])
def test_other_errors_are_left_alone(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, spark_faults("run"):
        raise error
    assert raised.value is error


#: What a journal's only segment has in it, and how commands end.
THIN: dict[str, tuple[str, int, str]] = {
    "a worker that has only started": (
        '{"v":1,"ts":1773446400000000,"mono":0,"seq":1,"ev":"worker-started","wid":"w1"}\n',
        FOUND,
        "has no messages",
    ),
    "a message and garbage": (
        '{"v":1,"ts":1773446400000000,"mono":0,"seq":1,"ev":"message-received","wid":"w1",'
        '"queue":"q","msg":"m1","dlv":"d1","rc":1,"cause":"new"}\nwhat}\n',
        FOUND,
        "j' could not be read (corrupt line: 1); the rest was.",
    ),
    "garbage": ("what}\n" * 3, REFUSED, "can be read of 2026-03-14 (corrupt line: 3)"),
    "foreign lines": ('{"name":"x"}\n' * 3, REFUSED, "(corrupt line: 3): give the value of sqs"),
    "lines of a newer version": ('{"v":2,"ts":1}\n', REFUSED, "(unknown version: 1): give"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("what", THIN)
def test_a_journal_of_which_something_is_missing_is_status_1_and_one_without_an_event_2(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As `report` and `tune` end, which make the same tables."""
    text, status, said = THIN[what]
    write_segment(tmp_path / "j", "2026-03-14", "w1", [], text)
    monkeypatch.setattr(jobs, "STEPS", {WORKERS: STEPS[WORKERS]})
    result = CliRunner().invoke(main, f"run --journal {tmp_path}/j --warehouse {tmp_path}/w")
    assert result.exit_code == status, result.output
    assert said in result.stderr.splitlines()[-1]


@pytest.mark.thorough
def test_a_fault_of_sparks_is_one_line_for_users(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Its log would have hundreds. Java itself warns about a module that Spark requests."""
    tables = shutil.copytree(built[1], tmp_path / "tables")
    for file in (tables / "duplicates").rglob("*.parquet"):
        data = file.read_bytes()
        footer = int.from_bytes(data[-8:-4], "little") + 8
        file.write_bytes(b"PAR1" + b"\xff" * (len(data) - footer - 4) + data[-footer:])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "celery", "-b", "memory://", "sqs-heartbeat", "report"),
            str(tables),
        ],
        cwd=tmp_path,
        # Without the options of the tests' own Spark.
        env={k: v for k, v in os.environ.items() if k not in ("PYSPARK_SUBMIT_ARGS", JAVA_VARIABLE)}
        | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SPARK_PATIENCE,
    )
    assert done.returncode == 2, done.stderr
    (line,) = (each for each in done.stderr.splitlines() if "incubator" not in each)
    assert line.startswith(f"Error: can't report on {str(tables)!r}: ")
    assert "/duplicates/" in line
    assert not (tmp_path / "report.html").exists()
