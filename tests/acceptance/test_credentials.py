"""A keeper signs its calls as its worker does, and no one else learns the secret."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.acceptance.processes import keepers_of
from tests.acceptance.record import CHANGE
from tests.acceptance.scene import OFTEN, STEADY, Scene
from tests.support.sts import FakeSts, serving_sts

NewScene = Callable[..., Scene]
KEY, SECRET = "AKIAOFTHETEST", "wJalrXUtnFEMISECRET"
#: A module of the user's, which writes down whether Celery was imported with it.
SESSIONS = f"""
import pathlib, sys
import boto3

def new_session():
    if "celery_sqs_heartbeat.keeper" in " ".join(sys.orig_argv):
        pathlib.Path(__file__).with_name("imported").write_text(str("celery" in sys.modules))
    return boto3.Session(aws_access_key_id={KEY!r}, aws_secret_access_key={SECRET!r})
"""
OPTIONS = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}


@dataclass(frozen=True)
class Given:
    """A worker's environment and settings, and which of its variables hold the secret."""

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
    # A key in the environment would override it.
    no_key = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    return Given(env={**profile, **no_key, **without_key(scene)})


def without_key(scene: Scene) -> dict[str, str]:
    return {"CELERY_BROKER_URL": f"sqs://{urlsplit(scene.proxy.url).netloc}"}


@pytest.mark.parametrize("by", [by_environment, by_broker_url, by_predefined_queue, by_profile])
def test_the_keeper_signs_with_the_key_of_its_worker_and_shows_the_secret_to_no_one(
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


@pytest.fixture
def sts() -> Iterator[FakeSts]:
    with serving_sts() as sts:
        yield sts


def test_the_keeper_assumes_the_role_of_its_workers_queue(
    new_scene: NewScene, sts: FakeSts
) -> None:
    scene = new_scene(attributes=STEADY)
    options = {
        **OPTIONS,
        "predefined_queues": {scene.name: {"url": scene.url}},
        "sts_role_arn": "arn:aws:iam::1:role/worker",
        "sts_token_timeout": 900,
    }
    worker = scene.worker(
        *("-c", "1", "-P", "threads"),
        conf={**OFTEN, "broker_transport_options": options},
        env={**by_environment(scene).env, "AWS_ENDPOINT_URL_STS": sts.url},
    )
    scene.send("hold", "a")
    (extension, *_) = scene.proxy.wait_for(CHANGE)
    scene.let_end("a")
    (delete, *_) = scene.proxy.wait_for("DeleteMessageBatch")
    assert extension.access_key == delete.access_key
    assert extension.access_key.startswith("role-key-")
    assert all("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fworker" in each for each in sts.served)
    assert SECRET not in worker.logs()


def test_the_keeper_signs_its_calls_with_a_session_that_only_code_can_make(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=STEADY)
    (scene.folder / "own_aws.py").write_text(SESSIONS)
    scene.worker(
        *("-c", "1", "-P", "threads"),
        conf={**OFTEN, "sqs_heartbeat_session": "own_aws:new_session"},
        env={"PYTHONPATH": os.pathsep.join((str(scene.folder), *filter(None, sys.path)))},
    )
    scene.send("hold", "a")
    (extension, *_) = scene.proxy.wait_for(CHANGE)
    scene.let_end("a")
    (delete, *_) = scene.proxy.wait_for("DeleteMessageBatch")
    assert extension.access_key == delete.access_key == KEY
    # The keeper's process has imported the function's module, and no Celery.
    assert (scene.folder / "imported").read_text() == "False"
