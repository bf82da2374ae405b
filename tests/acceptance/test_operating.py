"""What a real worker shows of itself, also if it cannot work: journal, page, metrics, report."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.link.watching import STALL_SECONDS
from tests.acceptance.processes import keepers_on
from tests.acceptance.record import CHANGE, extensions, receives, wait_for_extensions
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene
from tests.pipeline.cheap import JAVA, JAVA_VARIABLE, SUBMIT_ARGS
from tests.support.environment import SAFE_ENV
from tests.support.faults import never_answer
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


STATUS = {"sqs_heartbeat_status": "127.0.0.1:0"}
#: Instead of a minute.
SOON = {"PROJ_DEAF": "3"}
FAILS, WORKS = "receiving from queue", "works again"


def test_an_unreachable_sqs_makes_a_worker_unready_but_no_restart_would_help_it(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", conf=STATUS, env=SOON)
    scene.wait_until(lambda: probe(worker, "/readyz")[0] == 200)
    with scene.proxy.gone():
        scene.wait_until(lambda: probe(worker, "/healthz")[0] == 503)
        worker.wait_for_log(f"{FAILS} {scene.name} fails and is retried")
        # For longer than a loop may stall.
        scene.wait_until(lambda: health(worker)["polls"][0]["last_answered_age"] > 15)
        assert probe(worker, "/readyz")[0] == 503
        assert probe(worker, "/livez")[0] == 200
        assert health(worker)["polls"][0]["unanswered"] >= 1
    scene.wait_until(lambda: probe(worker, "/readyz")[0] == 200)
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    worker.wait_for_log(f"{FAILS} {scene.name} {WORKS}")
    *failures, works = [line for line in worker.logs().splitlines() if FAILS in line]
    assert WORKS in works
    # Once per change: an open poll may fail in another way than those after it.
    said = [line.partition("retried: ")[2] for line in failures]
    assert len(said) == len(set(said)) <= 2
    sample = r"^sqs_heartbeat_polls_unanswered_total\S* (\S+)"
    (counted,) = re.findall(sample, ask(worker, "/metrics"), re.MULTILINE)
    assert float(counted) >= 1


@pytest.mark.versions
def test_a_worker_polls_again_after_polls_that_are_never_answered_and_is_deaf_meanwhile(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.proxy.rule("ReceiveMessage", never_answer())
    worker = scene.worker("-c", "1", conf=STATUS, env=SOON)
    scene.wait_until(lambda: health(worker)["status"] == "deaf")
    assert "sqs_heartbeat_polls_unanswered_total" in ask(worker, "/metrics")
    scene.proxy.clear()
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    # The ages of several polls: the last one was answered, or another soon is.
    scene.wait_until(lambda: health(worker)["polls"][0]["last_answered_age"] < 5)
    scene.wait_until(lambda: health(worker)["status"] == "ok")

    def never_answered() -> int:
        return sum(call.forwarded_at is None for call in scene.calls("ReceiveMessage"))

    scene.wait_until(lambda: health(worker)["polls"][0]["unanswered"] == never_answered() >= 2)


def test_a_stalled_loop_is_reported_and_its_message_is_held(new_scene: NewScene) -> None:
    scene = new_scene(attributes=STEADY)
    worker = scene.worker("-c", "1", conf={**STATUS, **OFTEN}, env={"PROJ_STALL": "the loop"})
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    scene.send("hold_each", "a")
    # The process that stalls writes the worker's log: only the page can show it now.
    scene.wait_until(lambda: health(worker)["status"] == "stalled")
    assert health(worker)["last_loop_age"] > STALL_SECONDS
    assert "sqs_heartbeat_worker_stalled 1.0" in ask(worker, "/metrics")
    scene.let_end("the loop")
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    worker.wait_for_log("event loop has been stalled for")
    worker.wait_for_log("event loop continues after")
    assert any(call.answered_at for call in scene.calls(CHANGE))
    scene.let_end("a 1")
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]


def test_a_worker_whose_pool_takes_no_task_exits_with_an_error_and_releases_its_messages(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG, max_receive_count=3)
    for number in range(12):
        scene.send("work", str(number))
    worker = scene.worker("-P", "threads", "-c", "2", env={"PROJ_NO_THREADS": "1"}, wait=False)
    assert worker.process.wait(PATIENCE) == 1
    assert "the pool takes no tasks: the worker is broken" in worker.logs()
    assert "Unrecoverable error" in worker.logs()
    scene.wait_until(lambda: scene.counts() == (12, 0))
    assert scene.counts(scene.dead_letters) == (0, 0)


def test_a_report_blames_a_killed_worker_by_name(
    new_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    scene, journal = new_scene(attributes={"VisibilityTimeout": "10"}), tmp_path / "journal"
    # Extended about every second.
    conf = {"sqs_heartbeat_journal": str(journal), "sqs_heartbeat_threshold": 9}
    scene.send("hold", "a")
    killed = scene.worker("-c", "1", conf=conf)
    wait_for_extensions(scene, 1, since=0.0)
    (folder,) = journal.glob("dt=*/worker=*")
    killed.kill()
    scene.wait_until(lambda: keepers_on(scene) == [])
    scene.let_end("a")
    last = scene.worker("-c", "1", conf=conf)
    scene.wait_until_empty()
    last.kill("SIGTERM")
    assert last.wait_for_exit() == 0
    page = tmp_path / "report.html"
    command = "celery -b memory:// sqs-heartbeat report"
    subprocess.run(
        [sys.executable, "-m", *command.split(), str(journal), "--out", str(page)],
        env={**os.environ, **SAFE_ENV, JAVA_VARIABLE: JAVA, "PYSPARK_SUBMIT_ARGS": SUBMIT_ARGS},
        check=True,
        capture_output=True,
    )
    shown = page.read_text()
    assert "died-while-running" in shown
    assert f"worker {folder.name.removeprefix('worker=')} died" in shown
