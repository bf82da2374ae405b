"""Each part of `make bench` runs, every other benchmark can be imported, and its server counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BASELINE, PAGE
from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import NOTHING
from benchmarks.parts import PARTS
from tests.support.markdown import ROOT

pytestmark = pytest.mark.thorough

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if path.stem != "__init__"
)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_module_of_the_benchmarks_can_be_imported() -> None:
    done = run("-c", "\n".join(f"import {name}" for name in MODULES))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_in_its_smallest_size_and_writes_nothing(part: str) -> None:
    before = PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()
    done = run("-m", "benchmarks", "--tiny", part)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{part}: " in done.stdout
    assert (PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()) == before


def test_the_endless_server_counts_each_message_once(tmp_path: Path) -> None:
    with EndlessServer(tmp_path / "server.log") as server:
        client, queue = server.client(), server.queue(NOTHING)
        queue.fill(count=12)
        url = client.get_queue_url(QueueName=queue.name)["QueueUrl"]
        messages = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        handles = [each["ReceiptHandle"] for each in messages]
        client.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
        entries = [{"Id": str(n), "ReceiptHandle": each} for n, each in enumerate(handles)]
        client.delete_message_batch(QueueUrl=url, Entries=entries)
        counts = queue.counts(events=True)
    assert len(set(handles)) == 10
    assert (counts.received, counts.deleted, counts.in_flight) == (10, 10, 0)
    assert [count for _, count in counts.deletes] == [1, 9]
