"""Keepers that die or hang: another one takes over, and no lease expires."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.acceptance.processes import keepers_of, living
from tests.acceptance.record import CHANGE, wait_for_extensions
from tests.acceptance.scene import Scene
from tests.support.faults import delay
from tests.support.stalls import stood_still
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
FIVE_SECONDS = {"VisibilityTimeout": "5"}
#: Extended every second, with three seconds to spare for another keeper.
EAGER = {"sqs_heartbeat_threshold": 4}
HELD = ["a", "b", "c"]
#: A hang is noticed after a second and one or two checks.
SECONDS_UNTIL_ANOTHER = {signal.SIGKILL: 1.0, signal.SIGSTOP: 2.0}


@pytest.mark.parametrize(
    ("how", "pool"),
    [(signal.SIGKILL, "prefork"), (signal.SIGSTOP, "threads")],
)
def test_another_keeper_takes_over_during_deletes_and_releases_and_nothing_runs_twice(
    new_scene: NewScene, how: signal.Signals, pool: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=FIVE_SECONDS)
    worker = scene.worker("-c", "6", "-P", pool, conf=EAGER)
    for key in HELD:
        scene.send("hold", key)
    wait_for_extensions(scene, 1, since=0.0, messages=len(HELD))
    scene.proxy.rule("DeleteMessageBatch", delay(0.5))
    scene.proxy.rule(CHANGE, delay(0.2))
    for number in range(3):
        scene.send("work", f"short {number}")
        scene.send("fail", f"bad {number}")
    scene.wait_until(lambda: is_under_way(scene, "DeleteMessageBatch") and is_releasing(scene))
    end_keeper(scene, worker, how)
    scene.proxy.clear()
    # The tasks run for three timeouts of the queue.
    began = min(note.at for note in scene.notes("start"))
    scene.wait_until(lambda: time.monotonic() > began + 3 * int(FIVE_SECONDS["VisibilityTimeout"]))
    for key in HELD:
        scene.let_end(key)
    scene.wait_until_empty()
    assert sum(scene.counts(scene.dead_letters)) == 3
    short, bad = [f"short {number}" for number in range(3)], [f"bad {n}" for n in range(3)]
    assert scene.keys("start") == sorted([*HELD, *short, *bad, *bad])
    assert scene.keys("end") == sorted([*HELD, *short])
    assert scene.late_extensions() == []


def test_a_keeper_that_dies_again_and_again_is_replaced_after_ever_longer_pauses(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": "20"})
    worker = scene.worker("-c", "1", "-P", "threads", conf={"sqs_heartbeat_threshold": 18})
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    for pause in ("at once", "in 0.5 s", "in 1 s"):
        scene.wait_until(lambda: keepers_of(worker.pid))
        (keeper,) = keepers_of(worker.pid)
        os.kill(keeper, signal.SIGKILL)
        worker.wait_for_log(f"ended (signal SIGKILL); another starts {pause} and continues with 1 ")
    wait_for_extensions(scene, 1, since=time.monotonic())
    scene.let_end("a")
    scene.wait_until_empty()
    assert scene.keys("start") == scene.keys("end") == ["a"]
    assert len(keepers_of(worker.pid)) == 1


def end_keeper(scene: Scene, worker: ProcessWorker, how: signal.Signals) -> None:
    """Kill or stop the keeper; return once there is another, and nothing left of the first."""
    (keeper,) = keepers_of(worker.pid)
    os.kill(keeper, how)
    ended_at = time.monotonic()
    scene.wait_until(lambda: set(keepers_of(worker.pid)) - {keeper})
    replaced_at = time.monotonic()
    standstill = stood_still(scene.stalls, ended_at, replaced_at)
    assert replaced_at - ended_at < SECONDS_UNTIL_ANOTHER[how] + standstill
    scene.wait_until(lambda: living([keeper]) == [])
    assert len(keepers_of(worker.pid)) == 1


def is_under_way(scene: Scene, operation: str) -> bool:
    return any(call.answered_at is None for call in scene.calls(operation))


def is_releasing(scene: Scene) -> bool:
    return any(
        entry["VisibilityTimeout"] == 0
        for call in scene.calls(CHANGE)
        if call.answered_at is None
        for entry in call.entries
    )
