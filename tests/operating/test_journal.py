"""Journals of real processes: killed, with real threads, on S3 over the wire, copied from it."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import DONE, FOUND
from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.journal.__main__ import main
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.reading import FetchError, closed_segments, fetched, read_journal
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, write_all
from tests.support.aws import BUCKET, environment, new_server, serving, upload
from tests.support.markdown import blocks
from tests.support.waiting import PATIENCE
from tests.support.workers import ROOT
from tests.unit.journal.samples import event_of, files_in, frames_of

#: Writes endlessly, in many small segments, and prints how many lines are written.
WRITER = """
import os, sys
from celery_sqs_heartbeat.journal import journal as journals
from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.journal import folder
from tests.unit.journal.samples import event_of
journals.WRITE_SECONDS = 0.002
target, lines = sys.argv[1], int(sys.argv[2])
folder.SEGMENT_BYTES = lines * 300
journal = journals.Journal(target)
journal.start(WorkerInfo())
event = event_of(task="proj." + "x" * 80)
for number in range(10**9):
    journal(event)
    if number % 20 == 0:
        os.write(1, b"%d\\n" % journal.stats.written)
"""


def killed_writer(target: Path | str, lines: int, moments: random.Random) -> int:
    """Let a process write, kill it, and return how many lines it reported as written."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(target), str(lines)], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        written = 0
        least = moments.randrange(1, 3_000)
        while written < least:
            written = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = [line for line in process.stdout.read().split(b"\n")[:-1] if line]
    return int(rest[-1]) if rest else written


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_worker_loses_only_what_was_not_written(seed: int, tmp_path: Path) -> None:
    written = killed_writer(tmp_path, 40, random.Random(seed))
    closed = closed_segments(tmp_path)
    for path in closed:
        frames = frames_of(path)
        assert frames
        assert all(frame.endswith(b"}\n") for frame in frames)
    assert len([*tmp_path.rglob("*.open")]) <= 1
    before = [line["seq"] for line in read_journal(tmp_path)]
    assert before == list(range(1, len(before) + 1))
    assert len(before) >= written

    # The next process that starts closes the segment that was left open.
    journal = Journal(str(tmp_path))
    journal.start(WorkerInfo())
    journal.close(PATIENCE)
    assert all(name.endswith(".jsonl.zst") and "/." not in name for name in files_in(tmp_path))
    wid = {line["wid"] for line in read_journal(tmp_path) if line["seq"] > 2}
    assert len(wid) == 1
    after = [line["seq"] for line in read_journal(tmp_path) if line["wid"] in wid]
    assert after == before


def test_the_documented_snippet_finds_messages_that_were_received_again(tmp_path: Path) -> None:
    (snippet,) = blocks("docs/journal.md", "python")
    names: dict[str, Any] = {}
    exec(snippet, names)
    journal = Journal(str(tmp_path))
    journal.start(WorkerInfo())
    journal(event_of(message_id="once", receive_count=1))
    journal(event_of(message_id="again", receive_count=2))
    journal.close(PATIENCE)
    assert names["redelivered"](tmp_path) == {"again"}


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port where boto3 looks for S3, which may not be there yet."""
    with socket.socket() as held:
        # Meanwhile no other process gets it, but a server of this process may listen on it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        yield port


@pytest.fixture
def server(port: int) -> Iterator[ThreadedMotoServer]:
    server = new_server(port)
    yield server
    server.stop()


def shipped_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines that are in the bucket."""
    client = boto3.client("s3")
    for entry in client.list_objects_v2(Bucket="journals").get("Contents", ()):
        path = folder / entry["Key"]
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file("journals", entry["Key"], str(path))
    return list(read_journal(folder / "prod" / "eu"))


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def test_segments_that_a_killed_worker_left_without_s3_are_shipped_by_the_next(
    port: int, spool: Path, tmp_path: Path
) -> None:
    written = killed_writer("s3://journals/prod/eu", 400, random.Random(7))
    (days,) = spool.glob("celery-sqs-heartbeat-journal-*/*/journals/prod/eu")
    assert closed_segments(days)
    (dead,) = {line["wid"] for line in read_journal(days)}

    server = new_server(port)
    journal = Journal("s3://journals/prod/eu")
    journal.start(WorkerInfo())
    journal.close(PATIENCE)
    lines = [line["seq"] for line in shipped_lines(tmp_path / "got") if line["wid"] == dead]
    server.stop()
    assert lines == list(range(1, len(lines) + 1))
    assert len(lines) >= written
    assert files_in(spool) == []


JOURNAL = f"s3://{BUCKET}/prod/eu"
KEYS = [
    *(
        f"prod/eu/dt=2026-03-{day}/worker=w{n}/seg-1.jsonl.zst"
        for day in (13, 14, 15)
        for n in (1, 2)
    ),
    "prod/eu/dt=2026-03-14/worker=w1/seg-2.jsonl.zst",
]
OTHERS = [
    "prod/eu/README",
    "prod/eu/dt=2026-03-14/worker=w1/notes.txt",
    "prod/eu/dt=2026-03-14/worker=w1/more/seg-1.jsonl.zst",
    "prod/eu/dt=latest/worker=w1/seg-1.jsonl.zst",
    "prod/eu-west/dt=2026-03-14/worker=w1/seg-1.jsonl.zst",
    "dt=2026-03-14/worker=w9/seg-1.jsonl.zst",
]
EVERYTHING = Span()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with serving(monkeypatch) as client:
        yield client


def copied(journal: str, span: Span = EVERYTHING) -> dict[str, str]:
    """Return the files of the copy by their paths in it."""
    with fetched(journal, span) as folder:
        files = [path for path in folder.rglob("*") if path.is_file()]
        copies = {str(path.relative_to(folder)): path.read_text() for path in files}
    assert not folder.exists()
    return copies


@pytest.mark.parametrize(
    ("first", "last", "around", "days"),
    [
        (None, None, 0, "13 14 15"),
        (date(2026, 3, 14), None, 0, "14 15"),
        (None, date(2026, 3, 14), 0, "13 14"),
        (date(2026, 3, 16), date(2026, 3, 20), 0, ""),
        (date(2026, 3, 15), date(2026, 3, 15), 1, "14 15"),
        (date.min, date.max, 1, "13 14 15"),
    ],
)
def test_the_segments_of_the_days_are_copied_and_nothing_else(
    s3: Any, first: date | None, last: date | None, around: int, days: str
) -> None:
    for key in (*KEYS, *OTHERS):
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    wanted = [key for key in KEYS if any(f"dt=2026-03-{day}" in key for day in days.split())]
    copies = copied(f"{JOURNAL}/", Span(first, last).grown(around))
    assert copies == {key.removeprefix("prod/eu/"): key for key in wanted}


NO_BUCKET = "'s3://no-bucket/prod' can't be read: .*NoSuchBucket.*boto3 finds region.*s3:ListBucket"
NOTHING = f"there is no journal at 's3://{BUCKET}/typo'.* sqs_heartbeat_journal"


@pytest.mark.parametrize(
    ("journal", "variables", "fault"),
    [
        ("s3://no-bucket/prod", {}, NO_BUCKET),
        ("s3://", {}, "'s3://' must be a folder, or s3://BUCKET/PREFIX"),
        (f"s3://{BUCKET}/typo", {}, NOTHING),
        (
            JOURNAL,
            {"AWS_ENDPOINT_URL_S3": "localhost:4566"},
            r"can't be read: .*localhost:4566.* boto3 finds region",
        ),
        (
            JOURNAL,
            {
                "AWS_ACCESS_KEY_ID": "",
                "AWS_SECRET_ACCESS_KEY": "",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_SHARED_CREDENTIALS_FILE": "none",
            },
            "Unable to locate credentials.*boto3 finds region",
        ),
    ],
)
def test_a_journal_that_s3_does_not_return_is_an_error(
    s3: Any,
    monkeypatch: pytest.MonkeyPatch,
    journal: str,
    variables: dict[str, str],
    fault: str,
) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEYS[0], Body=b"")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FetchError, match=fault):
        copied(journal)


def test_a_folder_for_temporary_files_that_is_missing_is_an_error(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEYS[0], Body=b"")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(FetchError, match=r"can't be copied to '.*': .*set TMPDIR to use another"):
        copied(JOURNAL)


def test_a_journal_on_s3_is_printed_as_if_it_were_a_folder(s3: Any, tmp_path: Path) -> None:
    worker = Worker("w1", DAY)
    worker.attempt("m1", 1, DAY, 20, "message-deleted")
    journal = write_all(tmp_path / "journal", [worker])
    upload(journal, "prod/eu")

    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == (DONE if result.stdout else FOUND), result.output
        return result.stdout

    assert "message-deleted" in printed(JOURNAL, "--from", "2026-03-14")
    assert printed(JOURNAL) == printed(str(journal))
    assert printed(JOURNAL, "--from", "2026-03-15") == ""
