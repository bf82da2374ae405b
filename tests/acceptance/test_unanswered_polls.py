"""Polls that SQS does not answer: the worker polls the queue again, and is not ready meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.acceptance.scene import LONG, Scene
from tests.acceptance.test_operating import ask, health, probe
from tests.support.faults import never_answer, reset

NewScene = Callable[..., Scene]
STATUS = {"sqs_heartbeat_status": "127.0.0.1:0"}
#: Instead of a minute.
SOON = {"PROJ_DEAF": "3"}
FAILS, WORKS = "receiving from queue", "works again"


@contextmanager
def resetting(scene: Scene) -> Iterator[None]:
    """Reset all connections meanwhile."""
    scene.proxy.rule("*", reset())
    yield
    scene.proxy.clear()


def refusing(scene: Scene) -> AbstractContextManager[None]:
    """Refuse all connections meanwhile."""
    return scene.proxy.gone()


@pytest.mark.parametrize(
    ("pool", "unreachable"),
    [
        *((pool, refusing) for pool in ("prefork", "threads", "solo", "gevent", "eventlet")),
        *((pool, resetting) for pool in ("prefork", "solo")),
    ],
)
def test_an_unreachable_sqs_makes_a_worker_unready_but_no_restart_would_help_it(
    new_scene: NewScene, pool: str, unreachable: Callable[[Scene], AbstractContextManager[None]]
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", "-P", pool, conf=STATUS, env=SOON)
    scene.wait_until(lambda: probe(worker, "/readyz")[0] == 200)
    with unreachable(scene):
        scene.wait_until(lambda: probe(worker, "/healthz")[0] == 503)
        worker.wait_for_log(f"{FAILS} {scene.name} fails and is retried")
        # For longer than a loop may stall.
        scene.wait_until(lambda: health(worker)["polls"][0]["last_answered_age"] > 15)
        assert probe(worker, "/readyz")[0] == 503
        assert probe(worker, "/livez")[0] == 200
        assert health(worker)["polls"][0]["unanswered"] >= 1
    scene.wait_until(lambda: probe(worker, "/readyz")[0] == 200)
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    worker.wait_for_log(f"{FAILS} {scene.name} {WORKS}")
    *failures, works = [line for line in worker.logs().splitlines() if FAILS in line]
    assert WORKS in works
    # Once per change: an open poll may fail in another way than those after it.
    said = [line.partition("retried: ")[2] for line in failures]
    assert len(said) == len(set(said)) <= 2
    sample = r"^sqs_heartbeat_polls_unanswered_total\S* (\S+)"
    (counted,) = re.findall(sample, ask(worker, "/metrics"), re.MULTILINE)
    assert float(counted) >= 1


def test_a_worker_whose_poll_blocks_it_until_boto3_gives_up_is_not_stuck(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.proxy.rule("ReceiveMessage", never_answer())
    worker = scene.worker("-c", "1", "-P", "gevent", conf=STATUS, env=SOON)
    lives: list[int] = []

    def is_second_poll_old() -> bool:
        status, known = probe(worker, "/livez")
        lives.append(status)
        # boto3 has given up the first after 60 s.
        return any(queue["last_answered_age"] > 75 for queue in known["polls"])

    scene.wait_until(is_second_poll_old)
    assert set(lives) == {200}


@pytest.mark.oldest
def test_a_worker_polls_again_after_polls_that_are_never_answered_and_is_deaf_meanwhile(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.proxy.rule("ReceiveMessage", never_answer())
    worker = scene.worker("-c", "1", conf=STATUS, env=SOON)
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
