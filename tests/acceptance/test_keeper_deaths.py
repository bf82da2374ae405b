"""Keepers that die or hang: another one takes over, and no lease expires."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.acceptance.processes import keepers_of, living
from tests.acceptance.record import CHANGE, wait_for_extensions
from tests.acceptance.scene import OFTEN, STEADY, Scene
from tests.support.answers import Body
from tests.support.faults import Effect, forward_after
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
HELD = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("how", "pool"),
    [(signal.SIGKILL, "prefork"), (signal.SIGSTOP, "threads")],
)
def test_another_keeper_takes_over_during_deletes_and_releases_and_nothing_runs_twice(
    new_scene: NewScene, how: signal.Signals, pool: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=STEADY)
    worker = scene.worker("-c", "6", "-P", pool, conf=OFTEN)
    for key in HELD:
        scene.send("hold", key)
    wait_for_extensions(scene, 1, since=0.0, messages=len(HELD))
    is_killed = threading.Event()
    scene.proxy.rule("DeleteMessageBatch", forward_after(is_killed))
    scene.proxy.rule(CHANGE, only_releases(forward_after(is_killed)))
    for number in range(3):
        scene.send("work", f"short {number}")
        scene.send("fail", f"bad {number}")
    scene.wait_until(lambda: is_under_way(scene, "DeleteMessageBatch") and is_releasing(scene))
    scene.proxy.clear()
    end_keeper(scene, worker, how, is_killed.set)
    # Until the timeouts that the first keeper requested would have ended.
    ended_at = time.monotonic()
    wait_for_extensions(scene, 2, since=ended_at, messages=len(HELD))
    scene.wait_until(lambda: time.monotonic() > ended_at + int(STEADY["VisibilityTimeout"]))
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
    scene = new_scene(attributes=STEADY)
    worker = scene.worker("-c", "1", "-P", "threads", conf=OFTEN)
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


def end_keeper(
    scene: Scene, worker: ProcessWorker, how: signal.Signals, then: Callable[[], None]
) -> None:
    """Kill or stop the keeper; return once there is another, and nothing left of the first."""
    (keeper,) = keepers_of(worker.pid)
    os.kill(keeper, how)
    then()
    scene.wait_until(lambda: set(keepers_of(worker.pid)) - {keeper})
    scene.wait_until(lambda: living([keeper]) == [])
    assert len(keepers_of(worker.pid)) == 1


def is_under_way(scene: Scene, operation: str) -> bool:
    return any(call.answered_at is None for call in scene.calls(operation))


def is_releasing(scene: Scene) -> bool:
    return any(releases(call.body) for call in scene.calls(CHANGE) if call.answered_at is None)


def releases(body: Body) -> bool:
    """Return whether a call makes a message visible."""
    return any(entry["VisibilityTimeout"] == 0 for entry in body["Entries"])


def only_releases(effect: Effect) -> Effect:
    """Apply an effect to releases, but to no call that only extends leases."""
    return lambda body, forward: effect(body, forward) if releases(body) else forward(body)
