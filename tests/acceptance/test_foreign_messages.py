"""Messages that no Celery app has sent: the worker continues, and holds none of them."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.acceptance import foreign
from tests.acceptance.record import deleted, receives
from tests.acceptance.scene import LONG, STEADY, Scene

NewScene = Callable[..., Scene]
CONF: dict[str, Any] = {
    "imports": [foreign.MODULE],
    "task_acks_on_failure_or_timeout": False,
}


def send(scene: Scene, body: str) -> str:
    """Send a message, in its own group; return its id."""
    fifo = {"MessageGroupId": uuid.uuid4().hex, "MessageDeduplicationId": uuid.uuid4().hex}
    sent = scene.client.send_message(
        QueueUrl=scene.url, MessageBody=body, **(fifo if scene.is_fifo else {})
    )
    return str(sent["MessageId"])


@pytest.mark.parametrize(
    ("pool", "is_fifo"),
    [("prefork", False), ("prefork", True), ("threads", False), ("solo", True), ("gevent", False)],
)
def test_malformed_messages_become_dead_letters_and_all_others_run(
    new_scene: NewScene, pool: str, is_fifo: bool
) -> None:
    scene = new_scene(attributes=STEADY, max_receive_count=2, is_fifo=is_fifo)
    worker = scene.worker("-c", "2", "-P", pool, conf=CONF)
    odd: dict[str, str] = {}
    good: set[str] = set()
    for number, body in enumerate(foreign.malformed()):
        odd[send(scene, body)] = body[:1_000]
        if not number % 10:
            good.add(send(scene, json.dumps(foreign.envelope())))
    # What Celery has rejected stays hidden until its visibility timeout ends.
    scene.wait_until_empty()
    runs, gone = {*scene.keys("run")}, deleted(scene)
    assert good <= gone & runs
    # Some run although something about them is odd. Nothing else is deleted.
    assert [odd[message_id] for message_id in gone - runs] == []
    dead = len(odd) + len(good) - len(gone)
    assert sum(scene.counts(scene.dead_letters)) == dead
    logged = Counter(re.findall(r"message (\S+) of \S+ can't be delivered", worker.logs()))
    assert logged <= Counter(receives(scene))
    worker.kill("SIGTERM")
    assert worker.wait_for_exit() == 0


def test_a_task_that_can_not_be_started_takes_no_slot_and_does_not_end_the_worker(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG, max_receive_count=1)
    worker = scene.worker("-c", "1", conf=CONF)
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    # One is started when the first ends, one by a timer.
    soon = (datetime.now(timezone.utc) + timedelta(seconds=1)).isoformat()
    send(scene, foreign.task(stamped_headers=5))
    send(scene, foreign.task(stamped_headers=5, eta=soon))
    scene.wait_until(lambda: len(receives(scene)) == 3)
    scene.let_end("a")
    scene.send("work", "b")
    scene.wait_for_notes("end", 2)
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == 2)
    scene.wait_until_empty()
    # Each is released before it is logged.
    scene.wait_until(lambda: worker.logs().count("can't be run") == 2)
