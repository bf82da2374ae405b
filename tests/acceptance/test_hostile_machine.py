"""A worker that keeps its journal in S3, on a machine with another user who has set a trap."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.acceptance.scene import LONG, Scene
from tests.support import s3

NewScene = Callable[..., Scene]
SECRET = b'{"v":1,"ts":1,"secret":"of mine"}\n'


@pytest.mark.fresh
def test_a_trap_in_place_of_its_spool_disables_only_the_journal(
    new_scene: NewScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, mine = tmp_path / "tmp", tmp_path / "mine"
    temporary.mkdir()
    worker = mine / socket.gethostname() / s3.BUCKET / "prod" / "dt=2026-03-14" / "worker=w"
    worker.mkdir(parents=True)
    for name, data in (
        ("seg-1.jsonl.open", SECRET),
        ("seg-2.jsonl.zst", zstandard.compress(SECRET)),
    ):
        (worker / name).write_bytes(data)
    before = {path: path.read_bytes() for path in worker.iterdir()}
    spool = temporary / f"celery-sqs-heartbeat-journal-{os.geteuid()}"
    spool.symlink_to(mine)
    scene = new_scene(attributes=LONG)
    with s3.serving(monkeypatch) as client:
        process = scene.worker(
            "-c",
            "1",
            conf={"sqs_heartbeat_journal": f"s3://{s3.BUCKET}/prod"},
            env={"TMPDIR": str(temporary)},
        )
        scene.send("work", "a")
        scene.wait_for_notes("start", 1)
        scene.wait_until_empty()
        process.kill(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        assert client.list_objects_v2(Bucket=s3.BUCKET)["KeyCount"] == 0
    assert {path: path.read_bytes() for path in worker.iterdir()} == before
    assert process.logs().count("the journal does not work") == 1
    assert "for a journal on S3, TMPDIR" in process.logs()
