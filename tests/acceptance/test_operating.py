"""What a real worker shows of itself: its journal, its status page, its metrics."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.journal.reading import read_journal
from tests.acceptance.record import CHANGE, extensions, receives
from tests.acceptance.scene import LONG, Scene
from tests.support.waiting import PATIENCE
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
#: Set, because a worker that must read it does not start while the server stalls.
MINUTE = {"sqs_heartbeat_visibility_timeout": 60}


def ask(worker: ProcessWorker, path: str) -> str:
    """Return what the worker's status page answers."""
    worker.wait_for_log("status page at http://")
    # Another keeper has another port.
    url = re.findall(r"status page at (http://\S+)/", worker.logs())[-1]
    with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def probe(worker: ProcessWorker, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the data that a probe of its health receives."""
    try:
        return 200, json.loads(ask(worker, path))
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return 503, json.loads(error.read().decode())


def health(worker: ProcessWorker) -> dict[str, Any]:
    """Return its health."""
    return probe(worker, "/readyz")[1]


def test_the_journal_records_the_life_of_a_message(new_scene: NewScene, tmp_path: Path) -> None:
    scene = new_scene(attributes=LONG, max_receive_count=5)
    folder = tmp_path / "journal"
    # One extension, eight seconds after the receive.
    conf = {"sqs_heartbeat_journal": str(folder), **MINUTE, "sqs_heartbeat_threshold": 52}
    worker = scene.worker("-c", "1", conf=conf)
    scene.send("hold", "a")
    scene.proxy.wait_for(CHANGE)
    scene.let_end("a")
    scene.wait_until_empty()
    worker.kill(signal.SIGTERM)
    assert worker.wait_for_exit() == 0
    lines = list(read_journal(folder))
    assert [line["seq"] for line in lines] == list(range(lines[0]["seq"], lines[-1]["seq"] + 1))
    (message,) = receives(scene)
    # The events of two calls may be written in either order.
    by_time = sorted(lines, key=lambda line: line["mono"])
    kinds = [line["ev"] for line in by_time if line.get("msg") == message]
    # A slow machine starts the task later, and extends the lease again before it ends.
    extended = ["lease-extended"] * extensions(scene).total()
    assert (kinds[0], kinds[-1]) == ("message-received", "message-deleted")
    assert sorted(kinds[1:-1]) == [*extended, "task-started"]
    assert (lines[0]["ev"], lines[-1]["ev"]) == ("worker-started", "worker-stopped")
    assert [line["max_rc"] for line in lines if line["ev"] == "message-received"] == [5]
    handles = {
        entry["ReceiptHandle"]
        for call in scene.calls("DeleteMessageBatch")
        for entry in call.entries
    }
    assert handles
    assert not any(handle in json.dumps(line) for handle in handles for line in lines)


def test_the_status_page_shows_the_leases_of_the_worker(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "2", conf={"sqs_heartbeat_status": "127.0.0.1:0"})
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    # The keeper may not have read yet what its worker has received.
    scene.wait_until(lambda: leases(worker))
    (lease,) = leases(worker)
    (message,) = receives(scene)
    assert lease["message_id"] == message
    assert lease["task"] == "tests.acceptance.proj.hold"
    in_flight = f'sqs_heartbeat_in_flight_messages{{queue="{scene.name}"}} 1.0'
    assert in_flight in ask(worker, "/metrics")
    assert "<!doctype html>" in ask(worker, "/").lower()
    scene.let_end("a")
    scene.wait_until(lambda: not leases(worker))
    scene.wait_until_empty()


def leases(worker: ProcessWorker) -> list[dict[str, Any]]:
    told = json.loads(ask(worker, "/leases"))
    return list(told["leases"])


def test_the_spans_are_on_the_trace_of_the_message(new_scene: NewScene, tmp_path: Path) -> None:
    scene = new_scene(attributes=LONG)
    spans = tmp_path / "spans"
    conf = {"sqs_heartbeat_otel": True, **MINUTE, "sqs_heartbeat_threshold": 57}
    scene.worker(
        "-c", "1", conf=conf, env={"PROJ_INSTRUMENT": "spans", "PROJ_REPORTED": str(spans)}
    )
    trace = "0af7651916cd43dd8448eb211c80319c"
    scene.send("hold", "a", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    scene.wait_until(lambda: spans.exists() and spans.read_text())
    scene.let_end("a")
    scene.wait_until_empty()
    assert spans.read_text().splitlines()[0] == f"sqs_heartbeat.extend {trace}"


def test_a_broken_journal_loses_no_message(new_scene: NewScene, tmp_path: Path) -> None:
    scene = new_scene(attributes=LONG)
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    conf = {
        "sqs_heartbeat_journal": str(not_a_folder / "journal"),
        "sqs_heartbeat_status": "127.0.0.1:0",
    }
    worker = scene.worker("-c", "1", conf=conf)
    scene.send("work", "a")
    scene.wait_until_empty()
    assert scene.keys("end") == ["a"]

    def dropped() -> bool:
        sample = r"^sqs_heartbeat_journal_dropped_lines_total (\S+)"
        counts = re.findall(sample, ask(worker, "/metrics"), re.MULTILINE)
        return float(counts[0]) > 0

    scene.wait_until(dropped)
    worker.kill(signal.SIGTERM)
    assert worker.wait_for_exit() == 0
    assert "sqs-heartbeat: the journal" in worker.logs()
