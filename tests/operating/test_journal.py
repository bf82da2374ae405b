"""Journals of real processes: killed, with real threads, and with S3 over the wire."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.journal import folder
from celery_sqs_heartbeat.journal import journal as journals
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.reading import closed_segments, read_journal
from tests.support.aws import environment, new_server
from tests.support.markdown import blocks
from tests.support.waiting import PATIENCE, wait_until
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


def test_a_journal_is_in_s3_when_its_worker_has_ended(
    server: ThreadedMotoServer, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "SEGMENT_BYTES", 2_000)
    monkeypatch.setattr(journals, "WRITE_SECONDS", 0.01)
    journal = Journal("s3://journals/prod/eu")
    journal.start(WorkerInfo())
    for count in range(1, 51):
        journal(event_of())
        wait_until(lambda: journal.stats.written == count + 1)  # noqa: B023
    journal.close(PATIENCE)
    assert files_in(tmp_path) == []
    lines = shipped_lines(tmp_path / "got")
    assert [line["seq"] for line in lines] == list(range(1, 53))
    assert lines[-1]["ev"] == "worker-stopped"
    assert journal.stats.dropped == 0


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
