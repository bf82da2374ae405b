"""A task decides when its message becomes visible again. A policy decides for all tasks.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import celery
import pytest

from tests.acceptance.deciding import MODULE
from tests.acceptance.record import assert_released_for, timeouts_asked
from tests.acceptance.scene import LONG, Scene
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
POOLS: dict[str, dict[str, Any]] = {
    "prefork": {},
    "threads": {},
    "solo": {},
    "gevent": {},
    "eventlet": {},
    **({"spawn": {"worker_pool_start_method": "spawn"}} if celery.VERSION >= (5, 7) else {}),
}
#: What a worker logs if a busy machine stalls it or its keeper.
STALLS = ("the process did not run for", "the keeper is", "the keeper's process")
every_pool = pytest.mark.parametrize("pool", POOLS)


def start(scene: Scene, pool: str, **conf: Any) -> ProcessWorker:
    args = ["-P", "prefork" if pool == "spawn" else pool, "-c", "2"]
    return scene.worker(*args, conf={"imports": [MODULE], **POOLS[pool], **conf})


def send(scene: Scene, task: str, *args: Any) -> None:
    options = {"queue": scene.name, "routing_key": scene.name}
    scene.app.send_task(f"{MODULE}.{task}", args, **options)


@pytest.mark.oldest
@every_pool
def test_a_task_that_releases_its_message_gets_it_after_the_delay_and_has_not_failed(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    worker = start(scene, pool)
    send(scene, "release", "a", 1)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    first, second = (note.at for note in scene.notes("start"))
    assert second - first >= 1
    assert_released_for(scene, 1)
    log = worker.logs()
    assert log.count("released its message for 1 s") == 1
    # Neither a failure nor a retry, though the task has `autoretry_for=(Exception,)`.
    assert "Traceback" not in log
    lines = log.partition("ready.")[2].splitlines()
    assert [line for line in lines if "retry" in line] == []
    complaints = [line for line in lines if "WARNING/" in line or "ERROR/" in line]
    assert [line for line in complaints if not any(stall in line for stall in STALLS)] == []


@pytest.mark.parametrize("way", ["error", "released"])
@every_pool
def test_the_delay_that_a_task_has_set_counts_for_its_later_error(
    new_scene: NewScene, pool: str, way: str
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    start(scene, pool, sqs_heartbeat_release_delay=600)
    send(scene, "fail_after", "a", 1, way)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    first, second = (note.at for note in scene.notes("start"))
    assert second - first >= 1
    assert_released_for(scene, 1)


@pytest.mark.oldest
@pytest.mark.parametrize("way", ["killed", "time limit"])
@pytest.mark.parametrize("pool", [pool for pool in POOLS if pool in ("prefork", "spawn")])
def test_the_delay_that_a_task_has_set_counts_if_its_process_is_killed_later(
    new_scene: NewScene, pool: str, way: str
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    start(scene, pool, sqs_heartbeat_release_delay=599)
    send(scene, "fail_after", "a", 1, way)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert_released_for(scene, 1)


def test_on_its_last_receive_a_message_goes_to_the_dead_letter_queue_whatever_the_delay(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    worker = start(scene, "threads", sqs_heartbeat_release_delay="keep")
    send(scene, "release", "a", 1, 9)
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == 1)
    assert scene.keys("start") == ["a", "a"]
    assert_released_for(scene, 1, 0)
    assert worker.logs().count("that was its last receive") == 1


def test_a_named_function_receives_the_error_of_the_task(new_scene: NewScene) -> None:
    scene = new_scene(max_receive_count=5, attributes=LONG)
    start(scene, "prefork", sqs_heartbeat_release_delay=f"{MODULE}:backoff")
    send(scene, "lose_connection", "a")
    scene.wait_for_notes("start", 3)
    assert_released_for(scene, 1, 1)


def test_a_message_that_a_policy_keeps_is_visible_again_when_its_timeout_ends(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=5)
    start(scene, "threads", sqs_heartbeat_release_delay="keep")
    send(scene, "lose_connection", "a")
    scene.wait_for_notes("start", 2)
    received = [
        call for call in scene.calls("ReceiveMessage") if (call.answer or {}).get("Messages")
    ]
    assert received[1].answered_at - received[0].forwarded_at >= 4
    assert [each for each in timeouts_asked(scene) if each < 4] == []


def test_a_worker_without_the_flag_deletes_no_message_that_its_task_released(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=9, attributes=LONG)
    worker = scene.worker("-c", "1", flag=False, conf={"imports": [MODULE]})
    send(scene, "release_anyway", "a")
    scene.wait_for_notes("start", 2)
    worker.wait_for_log("raised ReleaseMessage, whose delay has no effect here")
    assert "Traceback" not in worker.logs()
    assert scene.proxy.calls("DeleteMessage") == []
    assert scene.proxy.calls("DeleteMessageBatch") == []


def test_a_task_that_acks_early_and_releases_logs_that_its_message_is_deleted(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    worker = start(scene, "prefork")
    send(scene, "release_too_late", "a")
    worker.wait_for_log("its message is deleted when it begins")
    scene.wait_until_empty()
    assert scene.keys("start") == ["a"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("bakoff", "did you mean 'backoff'?"),
        (f"{MODULE}:backof", "has no attribute 'backof'"),
    ],
)
def test_a_worker_whose_policy_can_not_be_used_exits_with_one_clear_line(
    new_scene: NewScene, setting: str, said: str
) -> None:
    scene = new_scene(attributes=LONG)
    conf = {"sqs_heartbeat_release_delay": setting}
    worker = scene.worker("-c", "1", conf=conf, wait=False)
    assert worker.wait_for_exit() == 1
    assert said in worker.logs()
    assert "Traceback" not in worker.logs()
