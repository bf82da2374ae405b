"""Workers that stall, and pools that fork again and again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.acceptance.processes import keepers_of
from tests.acceptance.record import CHANGE, handles
from tests.acceptance.scene import EARLY, SHORT, Scene
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]


def signal_both(worker: ProcessWorker, number: signal.Signals) -> None:
    """Signal a worker and its keeper, as a machine that is suspended stops both."""
    pids = [worker.pid, *keepers_of(worker.pid)]
    # A worker never runs while its keeper is stopped: it would replace the keeper.
    for pid in pids if number is signal.SIGSTOP else reversed(pids):
        os.kill(pid, number)


TIMEOUT = 15
#: A worker that stalls for some seconds on a busy machine loses nothing.
EAGER = {"sqs_heartbeat_threshold": 13}
KEYS = [f"t{number:02}" for number in range(10)]


@pytest.fixture(scope="module")
def sqs_server() -> Iterator[SimulatedServer]:
    """The only server that treats the handle of a message received elsewhere as AWS does."""
    with SimulatedServer() as server:
        yield server


def test_a_worker_that_was_stopped_reports_it_and_leaves_the_next_owner_alone(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": str(TIMEOUT)})
    frozen = scene.worker("-c", "1", "-P", "threads", conf=EAGER)
    scene.send("hold_each", "a")
    first = scene.wait_for_notes("start", 1)[0]
    scene.wait_until(lambda: any(call.answered_at for call in scene.calls(CHANGE)))
    signal_both(frozen, signal.SIGSTOP)
    stopped_at = time.monotonic()
    scene.worker("-c", "1", "-P", "threads", conf=EAGER)
    second = scene.wait_for_notes("start", 2)[1]
    assert second.pid != first.pid
    # Until the first worker can no longer assume that the message is its own.
    scene.wait_until(lambda: time.monotonic() > stopped_at + 2 * TIMEOUT)
    woken_at = time.monotonic()
    signal_both(frozen, signal.SIGCONT)
    frozen.wait_for_log("the process did not run for")
    frozen.wait_for_log("lease-lost")
    # Its task ends first. Its delete must not delete the message.
    scene.let_end("a 1")
    stale, theirs = handles(scene)
    scene.wait_until(lambda: stale in deleted(scene))
    assert scene.keys("end") == ["a"]
    assert scene.counts() == (0, 1)

    def asked() -> set[tuple[str, int]]:
        return {
            (entry["ReceiptHandle"], entry["VisibilityTimeout"])
            for call in scene.calls(CHANGE)
            if call.started_at > woken_at
            for entry in call.entries
        }

    scene.wait_until(asked)
    scene.let_end("a 2")
    scene.wait_for_notes("end", 2)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a"]
    assert asked() == {(theirs, TIMEOUT)}


def test_a_message_stays_visible_when_its_task_is_stopped_after_a_standstill(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes={"VisibilityTimeout": str(TIMEOUT)})
    # With one task at a time, no poll is open while it is stopped.
    arguments = ("-c", "1", "--prefetch-multiplier", "1")
    conf = {"sqs_heartbeat_on_lost": "terminate", **EAGER}
    frozen = scene.worker(*arguments, conf=conf)
    scene.send("slow_once", "a", 200)
    scene.wait_for_notes("start", 1)
    scene.wait_until(lambda: any(call.answered_at for call in scene.calls(CHANGE)))
    signal_both(frozen, signal.SIGSTOP)
    scene.wait_until(lambda: scene.counts() == (1, 0))
    woken_at = time.monotonic()
    signal_both(frozen, signal.SIGCONT)
    frozen.wait_for_log("stopping task")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a"]
    stale, *_ = handles(scene)
    late = [
        call
        for call in scene.calls(CHANGE)
        if call.started_at > woken_at
        for entry in call.entries
        if entry["ReceiptHandle"] == stale
    ]
    assert late == []


def test_a_pool_that_grows_and_shrinks_and_replaces_its_processes_runs_each_task_once(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=SHORT)
    worker = scene.worker("--autoscale", "4,1", "--max-tasks-per-child", "1", conf=EARLY)
    for key in KEYS:
        scene.send("work", key, 3)
    ends = scene.wait_for_notes("end", len(KEYS))
    scene.wait_until_empty()
    assert scene.keys("start") == scene.keys("end") == KEYS
    assert len({note.pid for note in ends}) == len(KEYS)
    assert worker.logs().count("Scaling up") >= 1
    assert scene.late_extensions() == []


def deleted(scene: Scene) -> set[str]:
    return {
        entry["ReceiptHandle"]
        for call in scene.calls("DeleteMessageBatch")
        if call.answered_at
        for entry in call.entries
    }
