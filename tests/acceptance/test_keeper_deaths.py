"""Keepers that die or hang: another one takes over, and no lease expires."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.processes import keepers_of, living
from tests.acceptance.record import CHANGE, wait_for_extensions
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene
from tests.support.faults import Body, Effect, forward_after
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
HELD = ["a", "b", "c"]
#: An interpreter that exits after 0.3 s, once the file DYING exists.
FRAGILE = """#!/bin/sh
if [ -e {dying} ]; then sleep 0.3; echo broken >&2; exit 3; fi
exec {python} "$@"
"""


def test_another_keeper_takes_over_during_deletes_and_releases_and_nothing_runs_twice(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=4, attributes=STEADY)
    worker = scene.worker("-c", "6", conf=OFTEN)
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
    (keeper,) = keepers_of(worker.pid)
    os.kill(keeper, signal.SIGKILL)
    is_killed.set()
    scene.wait_until(lambda: set(keepers_of(worker.pid)) - {keeper})
    scene.wait_until(lambda: living([keeper]) == [])
    assert len(keepers_of(worker.pid)) == 1
    # Until the timeouts that the first keeper requested would have ended.
    ended_at = time.monotonic()
    wait_for_extensions(scene, 2, since=ended_at, messages=len(HELD))
    scene.wait_until(lambda: time.monotonic() > ended_at + int(STEADY["VisibilityTimeout"]))
    for key in HELD:
        scene.let_end(key)
    scene.wait_until_empty()
    assert sum(scene.counts(scene.dead_letters)) == 3
    short, bad = [f"short {number}" for number in range(3)], [f"bad {n}" for n in range(3)]
    starts = Counter(scene.keys("start"))
    assert [starts[key] for key in (*HELD, *short)] == [1] * len([*HELD, *short])
    # The dead keeper's open poll may receive one. Then the next receive does not start it, either:
    # its release is unanswered.
    assert {starts[key] for key in bad} <= {2, 3, 4}
    assert scene.keys("end") == sorted([*HELD, *short])
    assert scene.late_extensions() == []


@pytest.fixture
def fragile(tmp_path: Path) -> Fragile:
    return Fragile(tmp_path)


def test_a_worker_whose_first_keeper_dies_at_its_start_receives_nothing_and_exits_with_one_error(
    new_scene: NewScene, fragile: Fragile
) -> None:
    fragile.die()
    scene = new_scene(attributes=LONG)
    scene.send("work", "a")
    worker = scene.worker("-c", "2", env=fragile.env, wait=False)
    assert worker.wait_for_exit() == 1
    assert scene.calls("ReceiveMessage") == []
    assert scene.counts() == (1, 0)
    (line,) = [line for line in worker.logs().splitlines() if "CRITICAL" in line]
    assert "the keeper's process ended (exit status 3) before it was ready" in line
    assert "Traceback" not in worker.logs()


def test_a_worker_whose_keepers_only_die_now_settles_its_messages_itself_and_exits(
    new_scene: NewScene, fragile: Fragile
) -> None:
    scene = new_scene(attributes=LONG)
    conf = {"sqs_heartbeat_keeper_timeout": 15, "worker_prefetch_multiplier": 3}
    worker = scene.worker("-c", "1", conf=conf, env=fragile.env)
    for key in HELD:
        scene.send("hold", key)
    scene.wait_until(lambda: scene.counts() == (0, 3) and scene.keys("start"))
    fragile.kill_keeper(worker)
    (first,) = scene.keys("start")
    scene.let_end(first)
    second = scene.wait_for_notes("start", 2)[1].key
    # The first is deleted, and the third released.
    scene.wait_until(lambda: scene.counts() == (1, 1))
    scene.let_end(second)
    assert worker.wait_for_exit() == 1
    assert scene.keys("start") == scene.keys("end") == sorted([first, second])
    assert scene.counts() == (1, 0)
    (line,) = [line for line in worker.logs().splitlines() if "CRITICAL" in line]
    assert "the last one ended (exit status 3); without a keeper the worker ends" in line


def test_a_keeper_starts_if_the_worker_does_not_know_its_interpreter(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", "-P", "threads", env={"PROJ_PYTHON": ""})
    scene.send("work", "a")
    scene.wait_until_empty()
    assert scene.keys("end") == ["a"]


class Fragile:
    """An interpreter for keepers, and what it needs to make them die at their start."""

    def __init__(self, folder: Path) -> None:
        self._dying = folder / "dying"
        self._python = folder / "python"
        command = FRAGILE.format(dying=shlex.quote(str(self._dying)), python=sys.executable)
        self._python.write_text(command)
        self._python.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """The environment of a worker that uses it."""
        return {"PROJ_PYTHON": str(self._python)}

    def die(self) -> None:
        """Make each later keeper die before it is ready."""
        self._dying.touch()

    def kill_keeper(self, worker: ProcessWorker) -> None:
        """Kill a worker's keeper. Return once the next one has died, too."""
        self.die()
        (keeper,) = keepers_of(worker.pid)
        os.kill(keeper, signal.SIGKILL)
        worker.wait_for_log("ended (exit status 3)")


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
