"""Polls that SQS never answers: the worker polls the queue again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.scene import LONG, Scene
from tests.acceptance.test_operating import ask, health
from tests.support.faults import never_answer

NewScene = Callable[..., Scene]
STATUS = {"sqs_heartbeat_status": "127.0.0.1:0"}


@pytest.mark.oldest
def test_a_worker_polls_again_after_polls_that_are_never_answered_and_is_deaf_meanwhile(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.proxy.rule("ReceiveMessage", never_answer())
    worker = scene.worker("-c", "1", conf=STATUS)
    scene.wait_until(lambda: health(worker)["status"] == "deaf")
    assert "sqs_heartbeat_polls_unanswered_total" in ask(worker, "/metrics")
    scene.proxy.clear()
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    # The ages of several polls: the last one was answered, or another soon is.
    scene.wait_until(lambda: health(worker)["polls"][0]["last_answered_age"] < 5)
    scene.wait_until(lambda: health(worker)["status"] == "ok")

    def never_answered() -> int:
        return sum(call.forwarded_at is None for call in scene.calls("ReceiveMessage"))

    scene.wait_until(lambda: health(worker)["polls"][0]["unanswered"] == never_answered() >= 2)
