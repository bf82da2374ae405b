"""Tasks that end by something other than an `Exception`, or by one that is hard to handle.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.acceptance.ends import ENDS, GREEN_ENDS, SWALLOWED
from tests.acceptance.record import CHANGE, DEAD_POLL
from tests.acceptance.scene import LONG, Scene
from tests.support.answers import Answer, Body
from tests.support.faults import Forward

NewScene = Callable[..., Scene]

#: One message for each process: a lost slot stops the worker.
ONE_EACH = {"worker_prefetch_multiplier": 1}
#: The green pools end tasks by the same code of Celery's as threads.
ON_THE_OLDEST = [pytest.param(pool, marks=pytest.mark.oldest) for pool in ("threads", "prefork")]


@pytest.mark.between
@pytest.mark.parametrize("pool", [*ON_THE_OLDEST, "gevent", "eventlet"])
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


@pytest.mark.oldest
def test_a_message_is_released_only_after_its_overdue_process_has_died(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    alive_at_releases: list[bool] = []

    def note_processes(body: Body, forward: Forward) -> Answer:
        if any(entry["VisibilityTimeout"] <= DEAD_POLL for entry in body["Entries"]):
            alive_at_releases.extend(is_alive(note.pid) for note in scene.notes("start"))
        return forward(body)

    scene.proxy.rule(CHANGE, note_processes)
    # As on a busy machine: longer than it takes to release a message.
    worker = scene.worker("-c", "1", env={"PROJ_KILL_LATE": "2"})
    scene.send("ignore_signals", "a", time_limit=2)
    scene.wait_until(lambda: alive_at_releases)
    assert alive_at_releases[0] is False
    assert "nothing will settle" not in worker.logs()
    scene.let_end("a")


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.oldest
def test_a_message_that_nothing_will_ack_or_release_is_released_within_seconds(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    worker = scene.worker("-c", "2", "-P", "threads", conf=ONE_EACH)
    ends = sorted(SWALLOWED)
    for end in ends:
        scene.send("end_by", end)
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == len(ends))
    for number in range(3):
        scene.send("work", f"good {number}")
    scene.wait_for_notes("end", 3)
    scene.wait_until_empty()
    assert worker.logs().count("nothing will settle it any more: it is released") == 2 * len(ends)


def test_a_message_whose_job_a_prefork_pool_forgot_is_visible_again_when_its_timeout_ends(
    new_scene: NewScene, tmp_path: Path
) -> None:
    scene = new_scene()
    forget = tmp_path / "forget"
    worker = scene.worker("-c", "2", conf=ONE_EACH, env={"PROJ_FORGET": str(forget)})
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    forget.touch()
    # The first run still continues: its end no longer affects its message.
    scene.wait_for_notes("start", 2)
    scene.let_end("a")
    scene.wait_until_empty()
    worker.wait_for_log("nothing will settle it any more: it becomes visible again")
    scene.wait_for_notes("end", 2)
    assert scene.keys("start") == ["a", "a"]
