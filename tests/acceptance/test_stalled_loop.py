"""A worker whose event loop stalls: its keeper reports it, and keeps its leases."""

from __future__ import annotations

import socket
from collections.abc import Callable

from celery_sqs_heartbeat.link.watching import STALL_SECONDS
from tests.acceptance.record import CHANGE
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene
from tests.acceptance.test_operating import ask, health, probe
from tests.support.waiting import PATIENCE

NewScene = Callable[..., Scene]
STALLED = "sqs_heartbeat_worker_stalled"


def test_a_stalled_loop_is_reported_and_its_message_is_held(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=STEADY)
    worker = scene.worker(
        "-c",
        "1",
        conf={"sqs_heartbeat_status": "127.0.0.1:0", **OFTEN},
        env={"PROJ_STALL": "the loop"},
    )
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    assert f"{STALLED} 0.0" in ask(worker, "/metrics")
    scene.send("hold_each", "a")
    # The process that stalls writes the worker's log: only the page can show it now.
    scene.wait_until(lambda: health(worker)["status"] == "stalled")
    assert health(worker)["last_loop_age"] > STALL_SECONDS
    assert f"{STALLED} 1.0" in ask(worker, "/metrics")
    scene.let_end("the loop")
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    worker.wait_for_log("event loop has been stalled for")
    worker.wait_for_log("event loop continues after")
    assert any(call.answered_at for call in scene.calls(CHANGE))
    scene.let_end("a 1")
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]


def test_a_shutdown_that_waits_for_a_task_in_a_signal_handler_is_not_reported_as_a_stall(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker(
        *("-c", "1", "-P", "threads"), conf={"worker_soft_shutdown_timeout": STALL_SECONDS + 2}
    )
    scene.send("work", "a", STALL_SECONDS + 1)
    scene.wait_for_notes("start", 1)
    worker.kill("SIGQUIT")
    worker.process.wait(PATIENCE)
    assert scene.keys("end") == ["a"]
    assert "has been stalled" not in worker.logs()


def test_a_worker_that_has_not_reached_its_broker_is_not_ready_but_not_stuck(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    with socket.socket() as nothing:
        # Bound, to keep anything else from listening there.
        nothing.bind(("127.0.0.1", 0))
        broker = f"sqs://k:s@127.0.0.1:{nothing.getsockname()[1]}"
        worker = scene.worker(
            *("-c", "1", "-P", "threads"),
            conf={
                "sqs_heartbeat_status": "127.0.0.1:0",
                "broker_connection_retry_on_startup": True,
            },
            env={"CELERY_BROKER_URL": broker},
            wait=False,
        )
        worker.wait_for_log("Cannot connect to")
        # It has started its heartbeat. By now its loop would be watched.
        scene.wait_until(lambda: health(worker)["last_tick_age"] is not None)
        assert health(worker)["last_loop_age"] is None
        assert [probe(worker, path)[0] for path in ("/livez", "/readyz")] == [200, 503]
        assert health(worker)["status"] == "unconnected"
