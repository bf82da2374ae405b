"""Several open polls of a busy queue, in pools without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from celery_sqs_heartbeat.sqs.long_polls import MAX_POLLS
from tests.acceptance.record import deleted
from tests.acceptance.scene import LONG, Scene
from tests.support.faults import delay
from tests.support.recording import Call
from tests.support.waiting import PATIENCE
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
GREEN_POOLS = pytest.mark.parametrize("pool", ["gevent", "eventlet"])
RECEIVE = "ReceiveMessage"
#: Far more than a worker receives with four polls: they are open at the same time again and again.
COUNT = 300


def start_busy(scene: Scene, pool: str) -> ProcessWorker:
    """Start a worker on a queue that has more messages than one receive returns."""
    for number in range(COUNT):
        scene.send("work", f"m{number}")
    scene.proxy.rule(RECEIVE, delay(0.2))
    return scene.worker("-c", "10", "-P", pool, "--prefetch-multiplier", "10")


def most_open(calls: Sequence[Call]) -> int:
    """Return how many calls were open at the same time."""
    return max(
        sum(
            each.started_at <= call.started_at < (each.answered_at or call.started_at + 1)
            for each in calls
        )
        for call in calls
    )


def open_polls(scene: Scene) -> list[Call]:
    return [call for call in scene.calls(RECEIVE) if call.answered_at is None]


@GREEN_POOLS
def test_a_busy_queue_has_several_open_polls_and_an_empty_one_has_one(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(attributes=LONG)
    start_busy(scene, pool)
    scene.wait_for_notes("end", COUNT)
    scene.wait_until_empty()
    assert most_open(scene.calls(RECEIVE)) == MAX_POLLS
    assert len(scene.keys("start")) == COUNT
    sent = len(scene.calls(RECEIVE))
    scene.wait_until(lambda: len(scene.calls(RECEIVE)) >= sent + MAX_POLLS + 2)
    assert most_open(scene.calls(RECEIVE)[-2:]) == 1


@GREEN_POOLS
def test_a_shutdown_runs_or_releases_the_messages_of_all_open_polls(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(attributes=LONG)
    worker = start_busy(scene, pool)
    scene.wait_until(lambda: len(open_polls(scene)) > 1)
    worker.kill("SIGTERM")
    worker.wait_for_log("shutdown (MainProcess)")
    for number in range(MAX_POLLS):
        scene.send("work", f"late{number}")
    assert worker.process.wait(PATIENCE) == 0
    assert_released(scene, COUNT + MAX_POLLS - len(scene.keys("end")))


def test_a_cold_shutdown_loses_no_message_of_a_busy_queue(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    worker = start_busy(scene, "gevent")
    scene.wait_until(lambda: len(open_polls(scene)) == MAX_POLLS)
    worker.kill("SIGQUIT")
    worker.process.wait(PATIENCE)
    # A task that was stopped after its last line, but before its ack, was released.
    done = deleted(scene)
    assert len(done) <= len(scene.keys("end"))
    assert_released(scene, COUNT - len(done))


def assert_released(scene: Scene, count: int) -> None:
    """Wait until so many messages are visible again, long before their timeout ends."""
    # Some are released until the end of an open poll.
    scene.wait_until(lambda: scene.counts() == (count, 0))
