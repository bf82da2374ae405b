"""A worker that can't work shows it: SQS does not answer, its event loop stalls, its pool fails."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from celery_sqs_heartbeat.link.watching import STALL_SECONDS
from tests.acceptance.record import CHANGE
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene
from tests.acceptance.test_operating import ask, health, probe
from tests.support.faults import never_answer
from tests.support.waiting import PATIENCE

NewScene = Callable[..., Scene]
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
