"""Messages that no Celery app has sent: the worker continues, and holds none of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from tests.acceptance.foreign import FOREIGN, LEFT, RUNS, task
from tests.acceptance.orders import MODULE, wait_for_no_lease
from tests.acceptance.record import handles, make_visible, receives, timeouts_asked
from tests.acceptance.scene import LONG, Scene

NewScene = Callable[..., Scene]
CONF = {"imports": [MODULE]}


def send(scene: Scene, body: str) -> None:
    scene.client.send_message(QueueUrl=scene.url, MessageBody=body)


def test_the_worker_continues_after_a_foreign_message_and_holds_no_lease_on_it(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", conf=CONF)
    for name, foreign in FOREIGN.items():
        send(scene, foreign.body)
        scene.send("work", f"after {name}")
        # One by one: if a message breaks something, the next one shows it.
        scene.wait_until(lambda name=name: f"after {name}" in scene.keys("end"))
    runs = sum(foreign.becomes == RUNS for foreign in FOREIGN.values())
    scene.wait_until(lambda: scene.keys("end").count("foreign") == runs)
    wait_for_no_lease(scene)
    left = sum(foreign.becomes == LEFT for foreign in FOREIGN.values())
    # Hidden for the rest of their visibility timeout, by no extension.
    assert scene.counts() == (0, left)
    assert timeouts_asked(scene) == []
    assert worker.logs().count("can't be ") == left
    assert worker.process.exit_code is None


def test_a_task_that_can_not_be_started_takes_no_slot_and_does_not_end_the_worker(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", conf=CONF)
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    # One is started when the first ends, one by a timer.
    soon = (datetime.now(timezone.utc) + timedelta(seconds=1)).isoformat()
    send(scene, task(timelimit=[1]))
    send(scene, task(timelimit=[1], eta=soon))
    scene.wait_until(lambda: len(receives(scene)) == 3)
    scene.let_end("a")
    scene.send("work", "b")
    scene.wait_for_notes("end", 2)
    wait_for_no_lease(scene)
    assert scene.counts() == (0, 2)
    assert worker.logs().count("can't be run") == 2


def test_foreign_messages_and_unknown_tasks_end_in_the_dead_letter_queue(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=1, attributes=LONG)
    scene.worker("-c", "1", conf=CONF)
    bodies = [FOREIGN["text"].body, FOREIGN["JSON object"].body, FOREIGN["broken base64"].body]
    for body in bodies:
        send(scene, body)
    scene.send("no_such_task")
    scene.wait_until(lambda: len(handles(scene)) == 4)
    wait_for_no_lease(scene)
    for handle in handles(scene):
        make_visible(scene, handle)
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == 4)
    scene.wait_until_empty()
    wait_for_no_lease(scene)
    assert timeouts_asked(scene) == []
    scene.send("work", "after")
    scene.wait_for_notes("end", 1)
