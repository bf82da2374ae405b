"""Pools without processes: greenlets that yield or do not, and the worker's own thread."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.acceptance.record import CHANGE, extensions, receives, released, wait_for_extensions
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene

NewScene = Callable[..., Scene]
GREEN_POOLS = pytest.mark.parametrize("pool", ["gevent", "eventlet"])


@pytest.mark.oldest
@GREEN_POOLS
def test_a_task_that_never_yields_is_extended_while_it_runs(new_scene: NewScene, pool: str) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "20"})
    # Extended every two seconds.
    scene.worker("-c", "10", "-P", pool, conf={"sqs_heartbeat_threshold": 18})
    # A task that yields shares its hub. Its message is held before and during the other task.
    scene.send("hold", "yields")
    wait_for_extensions(scene, 2, since=0.0)
    scene.send("spin", "spins")
    scene.wait_until(lambda: "spins" in scene.keys("start"))
    began = next(note.at for note in scene.notes("start") if note.key == "spins")
    # It spins until two extensions were made meanwhile.
    scene.proxy.wait_for(CHANGE, count=2, where=lambda call: call.started_at > began)
    assert "spins" not in scene.keys("end")
    scene.let_end("spins")
    scene.let_end("yields")
    scene.wait_for_notes("end", 2)
    scene.wait_until_empty()
    assert scene.keys("start") == ["spins", "yields"]
    assert scene.late_extensions() == []


@pytest.mark.parametrize("pool", ["gevent", pytest.param("eventlet", marks=pytest.mark.oldest)])
def test_a_message_whose_task_fails_is_released(new_scene: NewScene, pool: str) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    scene.worker("-c", "10", "-P", pool)
    scene.send("fail", "a")
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a", "a"]


@pytest.mark.oldest
def test_a_task_that_runs_at_a_warm_shutdown_is_kept_and_deleted(new_scene: NewScene) -> None:
    scene = new_scene(attributes=STEADY)
    worker = scene.worker("-c", "10", "-P", "gevent", conf=OFTEN)
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    worker.kill(signal.SIGTERM)
    worker.wait_for_log("Warm shutdown")
    wait_for_extensions(scene, 2, since=time.monotonic())
    scene.let_end("a")
    assert worker.wait_for_exit() == 0
    assert scene.keys("start") == scene.keys("end") == ["a"]
    assert scene.counts() == (0, 0)
    assert scene.late_extensions() == []


@pytest.mark.oldest
@GREEN_POOLS
def test_a_worker_whose_greenlets_are_all_taken_holds_its_prefetch_count_and_can_shut_down(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "2", "-P", pool)
    for key in "abcdefgh":
        scene.send("hold", key)
    scene.wait_for_notes("start", 2)
    scene.wait_until(lambda: scene.counts() == (0, 8))
    scene.let_end(scene.keys("start")[0])
    # The consumer is not blocked by a message that waits for a greenlet.
    scene.wait_until(lambda: scene.counts() == (0, 7))
    scene.wait_for_notes("start", 3)
    worker.kill(signal.SIGTERM)
    scene.wait_until(lambda: scene.counts() == (5, 2))
    for key in scene.keys("start"):
        scene.let_end(key)
    assert worker.wait_for_exit() == 0
    assert scene.keys("start") == scene.keys("end")
    assert scene.counts() == (5, 0)


def test_a_task_that_waits_for_room_in_the_pool_at_a_warm_shutdown_is_released_and_not_run(
    new_scene: NewScene,
) -> None:
    # Its timer has given it to the pool, which has no greenlet free, but will when "a" ends.
    # Not under eventlet, whose `GreenPool.waitall` never returns then, nor does a stock worker.
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", "-P", "gevent", "-l", "DEBUG")
    scene.send("work", "b", countdown=10)
    worker.wait_for_log("received")
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    scene.wait_until(lambda: worker.logs().count("TaskPool: Apply") == 2)
    worker.kill(signal.SIGTERM)
    worker.wait_for_log("releasing 1 message: not started")
    scene.let_end("a")
    worker.wait_for_exit()
    assert scene.keys("start") == ["a"]
    scene.worker("-c", "1")
    scene.wait_until_empty()
    assert scene.keys("end") == ["a", "b"]


@pytest.mark.oldest
def test_a_failed_message_is_released_while_the_next_solo_task_of_its_batch_runs(
    new_scene: NewScene,
) -> None:
    # The event loop, which handles the failure, is blocked meanwhile.
    scene = new_scene(attributes=LONG)
    scene.send("fail", "a")
    scene.send("hold", "b")
    worker = scene.worker("-c", "1", "-P", "solo")
    scene.wait_for_notes("start", 2)
    scene.wait_until(lambda: released(scene) == 1)
    assert scene.keys("start") == ["a", "b"]
    assert scene.keys("end") == []
    worker.kill(signal.SIGTERM)
    scene.let_end("b")
    worker.wait_for_exit()


def test_the_rest_of_a_batch_is_kept_while_a_solo_task_runs(new_scene: NewScene) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "20"})
    keys = ["a", "b", "c", "d"]
    scene.send("hold", "a")
    for key in keys[1:]:
        scene.send("work", key)
    # Extended every five seconds.
    conf = {"worker_prefetch_multiplier": len(keys), "sqs_heartbeat_threshold": 15}
    scene.worker("-c", "1", "-P", "solo", conf=conf)
    scene.wait_for_notes("start", 1)
    scene.wait_until(
        lambda: [count >= 4 for count in extensions(scene).values()] == [True] * len(keys)
    )
    scene.let_end("a")
    scene.wait_for_notes("end", len(keys))
    scene.wait_until_empty()
    assert scene.keys("start") == keys
    assert len(receives(scene)) == len(keys)
    batches = [
        call for call in scene.calls("ReceiveMessage") if (call.answer or {}).get("Messages")
    ]
    assert len(batches) == 1
    assert scene.late_extensions() == []
