"""Messages that no Celery app has sent: the worker continues, and holds none of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.acceptance import foreign
from tests.acceptance.record import deleted, receives
from tests.acceptance.scene import STEADY, Scene

NewScene = Callable[..., Scene]
CONF: dict[str, Any] = {
    "imports": [foreign.MODULE],
    "task_acks_on_failure_or_timeout": False,
}


def test_malformed_messages_become_dead_letters_and_all_others_run(new_scene: NewScene) -> None:
    scene = new_scene(attributes=STEADY, max_receive_count=2)
    worker = scene.worker("-c", "2", conf=CONF)

    def send(body: str) -> str:
        sent = scene.client.send_message(QueueUrl=scene.url, MessageBody=body)
        return str(sent["MessageId"])

    odd: dict[str, str] = {}
    good: set[str] = set()
    for number, body in enumerate(foreign.malformed()):
        odd[send(body)] = body[:1_000]
        if not number % 10:
            good.add(send(json.dumps(foreign.envelope())))
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
