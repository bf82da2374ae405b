"""The message of a task that fails, and that must stay in the queue, is released.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from kombu import VERSION

from tests.acceptance.record import asked_of_releases, timeouts_asked
from tests.acceptance.scene import LONG, Scene

#: A message that is rejected without requeue is deleted if its queue has no dead-letter queue.
#: Before, it stayed in flight until its visibility timeout ended (kombu 5.7, docs of the SQS
#: transport).
REJECT_DELETES = VERSION[:2] >= (5, 7)
NewScene = Callable[..., Scene]


def test_a_short_outage_of_what_tasks_depend_on_makes_no_dead_letters(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=5, attributes=LONG)
    keys = [f"{number:02}" for number in range(20)]
    for key in keys:
        scene.send("depend", key)
    scene.worker("-c", "2")
    failures = 2 * len(keys)

    def has_been_down_for_a_while() -> bool:
        # Released at once, the messages would fill every poll until all are dead letters.
        starts = scene.notes("start")
        return len(starts) >= failures and any(
            call.answered_at is not None
            and call.started_at > starts[failures - 1].at
            and not (call.answer or {}).get("Messages")
            for call in scene.calls("ReceiveMessage")
        )

    scene.wait_until(has_been_down_for_a_while)
    scene.let_end("dependency")
    dead = functools.partial(scene.counts, scene.dead_letters)
    scene.wait_until(lambda: len(scene.notes("end")) + sum(dead()) >= len(keys))
    assert scene.keys("end") == keys
    asked = asked_of_releases(scene)
    assert set(asked[1]) == {0}
    # A busy machine may make a release late, which then hides for the rest of the delay.
    assert max(asked[2]) <= 2
    assert min(gap for key in keys for gap in gaps(scene, key)[1:2]) >= 2


@pytest.mark.fresh
@pytest.mark.parametrize(("pool", "tool"), [("prefork", "Sentry"), ("threads", "OpenTelemetry")])
def test_in_an_instrumented_worker_messages_end_as_usual_and_each_error_is_reported(
    new_scene: NewScene, tmp_path: Path, pool: str, tool: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    errors = tmp_path / "errors"
    env = {"PROJ_INSTRUMENT": tool, "PROJ_REPORTED": str(errors)}
    scene.worker("-c", "2", "-P", pool, env=env)
    scene.send("work", "good")
    scene.send("fail", "bad")
    wait_for_dead_letters(scene, 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["bad", "bad", "good"]
    assert scene.keys("end") == ["good"]
    scene.wait_until(lambda: errors.exists() and errors.read_text().count("Error") == 2)
    lines = [line.split() for line in errors.read_text().splitlines() if "Error" in line]
    assert [(line[0].rpartition("/")[2], line[-1]) for line in lines] == [
        ("tests.acceptance.proj.fail", "ValueError")
    ] * 2


def test_any_end_that_leaves_its_message_in_the_queue_releases_it_at_once(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    # More processes than tasks: Celery is slow to notice a lost one and to replace it.
    scene.worker("-c", "4")
    scene.send("die", "its process is lost")
    scene.send("overrun", "hard time limit")
    scene.send("reject", "requeued", True)
    scene.wait_for_notes("end", 1)
    wait_for_dead_letters(scene, 2)
    scene.wait_until_empty()
    keys = ["hard time limit", "its process is lost", "requeued"]
    assert scene.keys("start") == sorted(2 * keys)
    assert scene.keys("end") == ["its process is lost"]
    # The call of a release may also extend other leases.
    assert set(timeouts_asked(scene)) - {int(LONG["VisibilityTimeout"])} == {0}


def wait_for_dead_letters(scene: Scene, count: int) -> None:
    """Return once so many messages are in the dead-letter queue."""
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == count)


def gaps(scene: Scene, key: str) -> list[float]:
    """Return the seconds from each start of a task to its next."""
    starts = [note.at for note in scene.notes("start") if note.key == key]
    return [later - sooner for sooner, later in pairwise(starts)]


def test_a_stock_worker_deletes_what_fails_if_the_queue_has_no_redrive_policy(
    new_scene: NewScene,
) -> None:
    # docs/motivation.md and docs/howto/stock-worker.md warn of it.
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", "-P", "threads", flag=False)
    scene.send("fail", "a")
    scene.wait_for_notes("start", 1)
    if REJECT_DELETES:
        scene.wait_until_empty()
    else:
        scene.send("work", "after it")
        scene.wait_for_notes("end", 1)
        assert scene.counts() == (0, 1)
    assert scene.keys("start")[0] == "a"
    assert scene.keys("start").count("a") == 1
