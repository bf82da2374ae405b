"""Workers that die: their messages are received again within the visibility timeout."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.acceptance.record import asked_of_receives, timeouts_asked, wait_for_extensions
from tests.acceptance.scene import VISIBILITY_TIMEOUT, Scene

NewScene = Callable[..., Scene]


@pytest.mark.parametrize("pool", [pytest.param("prefork", marks=pytest.mark.oldest), "threads"])
def test_a_killed_workers_message_comes_back_soon_after_its_last_extension(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene()
    scene.send("hold", "a")
    worker = scene.worker("-c", "1", "-P", pool)
    scene.wait_for_notes("start", 1)
    # On a busy machine the first extension may come before the task begins.
    wait_for_extensions(scene, 1, since=time.monotonic())
    worker.kill()
    # Nothing keeps it hidden any more, and nothing asked for more than the queue's timeout.
    scene.wait_until(lambda: scene.counts() == (1, 0))
    assert set(timeouts_asked(scene)) == {VISIBILITY_TIMEOUT}
    assert asked_of_receives(scene) <= {None, VISIBILITY_TIMEOUT}
    scene.worker("-c", "1", "-P", pool)
    scene.wait_for_notes("start", 2)
    scene.let_end("a")
    scene.wait_until_empty()
    assert scene.keys("start") == ["a", "a"]
    assert scene.keys("end") == ["a"]
