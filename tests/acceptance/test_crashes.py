"""Workers that die: their messages are received again within the visibility timeout."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.record import CHANGE
from tests.acceptance.scene import VISIBILITY_TIMEOUT, Scene
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]


@pytest.mark.oldest
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_killed_workers_message_comes_back_soon_after_its_last_extension(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene()
    scene.send("hold", "a")
    # A busy machine may hold up one of the two, but hardly both.
    delays = [_kill_and_wait(scene, scene.worker("-c", "1", "-P", pool), n) for n in (1, 2)]
    # No further extension came.
    assert min(delays) < 2 * VISIBILITY_TIMEOUT
    scene.worker("-c", "1", "-P", pool)
    scene.wait_for_notes("start", 3)
    scene.let_end("a")
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a", "a"]
    assert scene.keys("end") == ["a"]


def _kill_and_wait(scene: Scene, worker: ProcessWorker, starts: int) -> float:
    """Kill a worker that extends; return how long after that its message is visible."""
    # On a busy machine the first extension may come before the task begins.
    scene.wait_for_notes("start", starts)
    scene.proxy.forget()
    scene.proxy.wait_for(CHANGE)
    worker.kill()
    # Looked at, and left to the next worker.
    look = {"QueueUrl": scene.url, "VisibilityTimeout": 0, "WaitTimeSeconds": 20}
    scene.wait_until(lambda: scene.client.receive_message(**look).get("Messages"))
    extended_at = [call.forwarded_at for call in scene.calls(CHANGE) if call.forwarded_at]
    # The killed worker's last poll may be recorded after that.
    (seen,) = (
        call.answered_at
        for call in scene.calls("ReceiveMessage")
        if call.body.get("VisibilityTimeout") == 0 and (call.answer or {}).get("Messages")
    )
    assert seen is not None
    return seen - max(extended_at)
