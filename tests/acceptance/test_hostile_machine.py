"""A worker on a machine with another user, who has set a trap or asks for its page without end."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import zstandard

from tests.acceptance.scene import LONG, Scene
from tests.acceptance.test_operating import health
from tests.support import s3
from tests.support.waiting import PATIENCE

NewScene = Callable[..., Scene]
SECRET = b'{"v":1,"ts":1,"secret":"of mine"}\n'


@pytest.mark.fresh
def test_a_trap_in_the_place_of_its_spool_costs_the_journal_alone(
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
    assert "have TMPDIR name a folder" in process.logs()


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_its_probe_is_answered_while_others_hold_connections(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "2", "-P", pool, conf={"sqs_heartbeat_status": "127.0.0.1:0"})
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    address = urlsplit(next(line for line in worker.logs().split() if line.startswith("http://")))
    with ExitStack() as stack:
        for _ in range(200):
            idle = socket.create_connection((address.hostname, address.port or 0), PATIENCE)
            stack.enter_context(idle)
        for _ in range(5):
            scene.wait_until(lambda: health(worker)["status"] == "ok")
