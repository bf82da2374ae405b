"""Polls that SQS never answers, or long after their time: the queue is polled on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.acceptance.record import receives
from tests.acceptance.scene import LONG, Scene
from tests.acceptance.test_operating import ask, health
from tests.support.faults import answer_when, first, never_answer

NewScene = Callable[..., Scene]
STATUS = {"sqs_heartbeat_status": "127.0.0.1:0"}


@pytest.mark.parametrize("pool", [pytest.param("prefork", marks=pytest.mark.oldest), "solo"])
def test_a_queue_is_polled_again_after_a_poll_that_is_never_answered(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(attributes=LONG)
    # Before the worker starts: a poll that is open already would bring the message.
    scene.proxy.rule("ReceiveMessage", first(1, never_answer()))
    scene.send("work", "a")
    worker = scene.worker("-c", "1", "-P", pool, conf=STATUS)
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    # The ages of several polls: the last one was answered, or another soon will be.
    scene.wait_until(lambda: health(worker)["polls"][0]["last_answered_age"] < 5)
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    assert [poll["unanswered"] for poll in health(worker)["polls"]] == [1]


def test_an_answer_that_comes_when_its_poll_was_given_up_is_leased_and_run(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    is_given_up = threading.Event()
    scene.proxy.rule("ReceiveMessage", first(1, answer_when(is_given_up)))
    scene.send("work", "a")
    worker = scene.worker("-c", "1", "-P", "threads", conf=STATUS)
    scene.wait_until(lambda: [poll["unanswered"] for poll in health(worker)["polls"]] == [1])
    is_given_up.set()
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert health(worker)["polls"][0]["unanswered"] == 1
    assert len(receives(scene)) == 1


def test_a_worker_says_that_it_is_deaf_until_a_poll_is_answered(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", "-P", "threads", conf=STATUS)
    scene.proxy.rule("ReceiveMessage", never_answer())
    scene.wait_until(lambda: health(worker)["status"] == "deaf")
    assert "sqs_heartbeat_polls_unanswered_total" in ask(worker, "/metrics")
    scene.proxy.clear()
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    scene.wait_until(lambda: health(worker)["status"] == "ok")


def test_a_full_worker_that_does_not_poll_is_well(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", "-P", "threads", "--prefetch-multiplier", "1", conf=STATUS)
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    # For longer than two polls that are not answered take.
    scene.wait_until(lambda: health(worker)["polls"][0]["last_answered_age"] > 25)
    # As it would be deaf for as long as it does not poll.
    scene.wait_until(lambda: health(worker)["status"] == "ok")
    scene.let_end("a")
    scene.wait_until_empty()
