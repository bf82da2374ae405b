"""A worker that stalls, as on a machine that is suspended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.acceptance.processes import keepers_of
from tests.acceptance.record import CHANGE, handles
from tests.acceptance.scene import Scene
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


def deleted(scene: Scene) -> set[str]:
    return {
        entry["ReceiptHandle"]
        for call in scene.calls("DeleteMessageBatch")
        if call.answered_at
        for entry in call.entries
    }
