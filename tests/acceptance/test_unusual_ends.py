"""Tasks that end by something other than an `Exception`, or by one that is hard to handle.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.ends import ENDS, GREEN_ENDS
from tests.acceptance.processes import is_zombie, living
from tests.acceptance.record import CHANGE, DEAD_POLL
from tests.acceptance.scene import LONG, Scene
from tests.support.faults import Answer, Body, Forward

NewScene = Callable[..., Scene]

#: One message for each process: a lost slot stops the worker.
ONE_EACH = {"worker_prefetch_multiplier": 1}
#: The green pools end tasks by the same code of Celery's as threads.
EVERYWHERE = [pytest.param(pool, marks=pytest.mark.versions) for pool in ("threads", "prefork")]


@pytest.mark.versions
@pytest.mark.parametrize("pool", [*EVERYWHERE, "gevent", "eventlet"])
def test_however_a_task_ends_its_message_is_settled_and_its_slot_is_free(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    worker = scene.worker("-c", "2", "-P", pool, conf=ONE_EACH)
    ends = sorted({**ENDS, **(GREEN_ENDS if pool in ("gevent", "eventlet") else {})})
    for end in ends:
        scene.send("end_by", end)
    if pool == "gevent":
        # Its hard time limit is a gevent.Timeout, which is Celery's own.
        scene.send("overrun", "overrun")
        ends.append("overrun")
    scene.send("end_and_ack", "acked", "exit")
    scene.send("end_and_ack", "acked too", "custom")
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == len(ends))
    for number in range(3):
        scene.send("work", f"good {number}")
    scene.wait_for_notes("end", 3)
    scene.wait_until_empty()
    assert scene.keys("start") == sorted(
        [*ends, *ends, "acked", "acked too", "good 0", "good 1", "good 2"]
    )
    assert "nothing will settle" not in worker.logs()


@pytest.mark.versions
def test_a_message_is_released_only_after_its_overdue_process_has_died(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    alive_at_releases: list[bool] = []

    def note_processes(body: Body, forward: Forward) -> Answer:
        if any(entry["VisibilityTimeout"] <= DEAD_POLL for entry in body["Entries"]):
            pids = [note.pid for note in scene.notes("start")]
            alive_at_releases.extend(pid in living(pids) and not is_zombie(pid) for pid in pids)
        return forward(body)

    scene.proxy.rule(CHANGE, note_processes)
    # As on a busy machine: longer than it takes to release a message.
    worker = scene.worker("-c", "1", env={"PROJ_KILL_LATE": "2"})
    scene.send("ignore_signals", "a", time_limit=2)
    scene.wait_until(lambda: alive_at_releases)
    assert alive_at_releases[0] is False
    assert "nothing will settle" not in worker.logs()
    scene.let_end("a")
