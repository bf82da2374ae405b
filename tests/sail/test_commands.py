"""The commands on Sail, as users run them, on a machine without Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from celery_sqs_heartbeat.pipeline import schema
from tests.support.markdown import ROOT
from tests.support.s3 import BUCKET, serving, upload
from tests.support.waiting import SPARK_PATIENCE

CELERY = ("celery", "-b", "sqs://", "sqs-heartbeat")
REPORT = (*CELERY, "report", "--engine", "sail")
TUNE = (*CELERY, "tune", "--engine", "sail")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def run_in(
    folder: Path, *command: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module's command in a folder, with an empty path and a proxy that is down."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={
            "PATH": "",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "http_proxy": "http://127.0.0.1:9",
            **(env or {}),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SPARK_PATIENCE,
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a module's command in an empty folder."""
    return partial(run_in, tmp_path)


@pytest.fixture(scope="module")
def tables(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that `run` makes from the journal."""
    folder = tmp_path_factory.mktemp("run")
    arguments = ("run", "--engine", "sail", "--journal", str(journal), "--warehouse", "tables")
    done = run_in(folder, "celery_sqs_heartbeat.pipeline", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert all(table in done.stdout for table in schema.TABLES)
    return folder / "tables"


@pytest.fixture(scope="module")
def tuned(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The settings that `tune` prints for the journal."""
    done = run_in(tmp_path_factory.mktemp("tune"), *TUNE, str(journal))
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_boto3() -> dict[str, str]:
    """Return the variables with which a command uses the same S3 as this process."""
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return {**aws, "no_proxy": "127.0.0.1"}


def test_run_makes_the_tables_and_prints_their_row_counts(tables: Path) -> None:
    assert {path.name for path in tables.iterdir()} == set(schema.TABLES)


def test_report_writes_the_page_of_a_journal(run: Run, journal: Path, tmp_path: Path) -> None:
    done = run(*REPORT, str(journal), "--out", "journal.html")
    assert done.returncode == 0, done.stderr
    assert "Wrote journal.html" in done.stdout
    page = (tmp_path / "journal.html").read_text()
    assert "keeper-starved" in page
    assert "<svg" in page


def test_without_an_option_sail_is_used_and_named(run: Run, tables: Path, tuned: str) -> None:
    done = run(*CELERY, "tune", str(tables))
    assert done.returncode == 0, done.stderr
    assert done.stdout == tuned
    assert done.stderr == "Using Sail, because it is installed and can do this on one machine.\n"


def test_report_of_the_tables_is_the_journals_except_for_its_first_line(
    run: Run, journal: Path, tables: Path, tmp_path: Path
) -> None:
    for source, name in ((journal, "journal.html"), (tables, "tables.html")):
        done = run(*REPORT, str(source), "--out", name)
        assert done.returncode == 0, done.stderr
    pages = [(tmp_path / name).read_text() for name in ("journal.html", "tables.html")]
    firsts = [re.findall('<p class="covers">.*', page)[0] for page in pages]
    assert re.search(r"Covers \d+ workers, \d+ segments of their journal, ", firsts[0])
    assert "tables of a warehouse" in firsts[1]
    assert pages[0].replace(firsts[0], firsts[1]) == pages[1]


def test_report_on_nothing_is_an_error_and_no_page(run: Run, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    done = run(
        "celery", "-b", "memory://", "sqs-heartbeat", "report", "journal", "--engine", "sail"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: 'journal' is an empty folder")
    assert not (tmp_path / "report.html").exists()


def test_a_fault_of_sails_is_one_line(run: Run, tables: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tables, tmp_path / "copy")
    for file in (copy / "duplicates").rglob("*.parquet"):
        data = file.read_bytes()
        footer = int.from_bytes(data[-8:-4], "little") + 8
        file.write_bytes(b"PAR1" + b"\xff" * (len(data) - footer - 4) + data[-footer:])
    done = run(*REPORT, str(copy))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: can't report on {str(copy)!r}: ")
    assert not (tmp_path / "report.html").exists()


def test_tune_prints_settings_from_a_journal_and_the_same_from_its_tables(
    run: Run, tuned: str, tables: Path
) -> None:
    assert "sqs_heartbeat_queues" in tuned
    assert run(*TUNE, str(tables)).stdout == tuned


def test_a_journal_on_s3_is_copied(
    run: Run, journal: Path, tuned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch):
        upload(journal, "prod")
        done = run(*TUNE, f"s3://{BUCKET}/prod", env=by_boto3())
    assert done.returncode == 0, done.stderr
    assert done.stdout == tuned


def test_a_journal_that_s3_does_not_return_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch):
        done = run(*TUNE, "s3://no-bucket/prod", env=by_boto3())
    assert done.returncode == 2
    assert "Error: the journal 's3://no-bucket/prod' can't be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_url_is_refused_with_the_way_out(run: Run, journal: Path) -> None:
    arguments = ("run", "--engine", "sail", "--journal", str(journal), "--warehouse", "s3://b/w")
    done = run("celery_sqs_heartbeat.pipeline", *arguments)
    assert done.returncode == 2
    assert "give a folder, or use the engine spark" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_sail_does_not_accept_is_named(tmp_path: Path, journal: Path) -> None:
    arguments = (*REPORT[1:], str(journal), "--out", "page.html")
    done = run_in(tmp_path, REPORT[0], *arguments, env={"SAIL_PYTHON": "1"})
    assert done.returncode == 2
    assert "the engine sail does not start" in done.stderr
    assert "SAIL_" in done.stderr
    assert "or use --engine spark" in done.stderr
    assert "Traceback" not in done.stderr
