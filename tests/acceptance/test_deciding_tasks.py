"""A task decides when its message becomes visible again.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.record import assert_released_for
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
#: What a worker logs if a busy machine stalls it or its keeper.
STALLS = ("the process did not run for", "the keeper is", "the keeper's process")


def test_a_task_that_releases_its_message_gets_it_after_the_delay_and_has_not_failed(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    worker = scene.worker("-c", "2")
    scene.send("release", "a", 1)
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


@pytest.mark.parametrize("is_killed", [False, True], ids=["error", "killed"])
def test_the_delay_that_a_task_has_set_counts_for_its_later_error(
    new_scene: NewScene, is_killed: bool
) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    scene.worker("-c", "2", conf={"sqs_heartbeat_release_delay": 599})
    scene.send("delay_and_fail", "a", 1, is_killed)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert_released_for(scene, 1)


def test_a_worker_without_the_flag_deletes_no_message_that_its_task_released(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=9, attributes=LONG)
    worker = scene.worker("-c", "1", flag=False)
    scene.send("release_anyway", "a")
    scene.wait_for_notes("start", 2)
    worker.wait_for_log("raised ReleaseMessage, whose delay has no effect here")
    assert "Traceback" not in worker.logs()
    assert scene.proxy.calls("DeleteMessage") == []
    assert scene.proxy.calls("DeleteMessageBatch") == []
