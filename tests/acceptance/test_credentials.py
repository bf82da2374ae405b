"""Whatever a worker signs its calls with, its keeper does, too, and no one else learns of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.acceptance.processes import keepers_of
from tests.acceptance.record import CHANGE
from tests.acceptance.scene import OFTEN, STEADY, Scene

NewScene = Callable[..., Scene]
KEY, SECRET = "AKIAOFTHETEST", "wJalrXUtnFEMISECRET"
OPTIONS = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}


@dataclass(frozen=True)
class Given:
    """A worker's environment and settings, and which variables of its have the secret."""

    env: dict[str, str] = field(default_factory=dict)
    conf: dict[str, Any] = field(default_factory=dict)
    within: tuple[str, ...] = ()


def by_environment(scene: Scene) -> Given:
    env = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    return Given(env={**env, **without_key(scene)}, within=("AWS_SECRET_ACCESS_KEY",))


def by_broker_url(scene: Scene) -> Given:
    url = f"sqs://{KEY}:{SECRET}@{urlsplit(scene.proxy.url).netloc}"
    return Given(env={"CELERY_BROKER_URL": url}, within=("CELERY_BROKER_URL",))


def by_predefined_queue(scene: Scene) -> Given:
    queue = {"url": scene.url, "access_key_id": KEY, "secret_access_key": SECRET}
    options = {**OPTIONS, "predefined_queues": {scene.name: queue}}
    return Given(conf={"broker_transport_options": options}, within=("PROJ_CONF",))


def by_profile(scene: Scene) -> Given:
    file = scene.folder / "credentials"
    file.write_text(f"[of-test]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")
    profile = {"AWS_PROFILE": "of-test", "AWS_SHARED_CREDENTIALS_FILE": str(file)}
    # A key in the environment would go before it.
    no_key = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    return Given(env={**profile, **no_key, **without_key(scene)})


def without_key(scene: Scene) -> dict[str, str]:
    return {"CELERY_BROKER_URL": f"sqs://{urlsplit(scene.proxy.url).netloc}"}


@pytest.mark.parametrize("by", [by_environment, by_broker_url, by_predefined_queue, by_profile])
def test_the_keeper_signs_by_the_key_of_its_worker_and_shows_the_secret_to_no_one_else(
    new_scene: NewScene, by: Callable[[Scene], Given]
) -> None:
    scene = new_scene(attributes=STEADY)
    given = by(scene)
    conf = {**OFTEN, **given.conf}
    worker = scene.worker("-c", "1", "-P", "threads", conf=conf, env=given.env)
    scene.send("hold", "a")
    (extension, *_) = scene.proxy.wait_for(CHANGE)
    (keeper,) = map(psutil.Process, keepers_of(worker.pid))
    assert SECRET not in " ".join(keeper.cmdline())
    having = {name for name, value in keeper.environ().items() if SECRET in value}
    assert having == set(given.within)
    scene.let_end("a")
    (delete, *_) = scene.proxy.wait_for("DeleteMessageBatch")
    (poll, *_) = scene.proxy.wait_for("ReceiveMessage")
    assert extension.access_key == delete.access_key == poll.access_key == KEY
    assert SECRET not in worker.logs()
