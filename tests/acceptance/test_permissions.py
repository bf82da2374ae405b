"""Permissions and credentials: what is missing is said once, and the secret is shown to no one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import psutil

from tests.acceptance.processes import keepers_of
from tests.acceptance.record import CHANGE
from tests.acceptance.scene import OFTEN, STEADY, Scene
from tests.support.faults import deny

NewScene = Callable[..., Scene]


def test_a_worker_that_starts_without_permission_logs_one_line(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.proxy.rule("ListQueues", deny())
    worker = scene.worker("-c", "1", "-Q", "new", wait=False)
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    (line,) = [each for each in log.splitlines() if "sqs-heartbeat doctor` checks" in each]
    assert "sqs-heartbeat: SQS does not list the queues: An error occurred (AccessDenied" in line
    assert "Traceback" not in log
    assert scene.proxy.calls("ReceiveMessage") == []


def test_without_permission_to_extend_the_worker_continues_without_leases(
    new_scene: NewScene,
) -> None:
    # A call has four seconds. One without an answer is no refusal: a whole batch may follow it.
    scene = new_scene(attributes={"VisibilityTimeout": "14"})
    scene.proxy.rule(CHANGE, deny())
    conf = {"sqs_heartbeat_threshold": 12}
    worker = scene.worker("-c", "2", "-P", "threads", conf=conf)
    for key in ("a", "b"):
        scene.send("hold", key)
    worker.wait_for_log("lease-expired")
    # Refused, and probed.
    scene.proxy.wait_for(CHANGE, count=3)
    for key in ("a", "b"):
        scene.let_end(key)
    scene.wait_for_notes("end", 2)
    for key in ("c", "d"):
        scene.send("work", key)
    scene.wait_until(lambda: {"c", "d"} <= set(scene.keys("end")))
    log = worker.logs()
    assert log.count("permission sqs:ChangeMessageVisibility is missing on queue") == 1
    assert scene.url.rsplit("/", 1)[-1] in log.split("is missing on queue")[1].splitlines()[0]
    _, *probes = scene.proxy.calls(CHANGE)
    assert probes
    assert all(len(probe.entries) == 1 for probe in probes)


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


def test_the_keeper_signs_with_the_key_of_its_worker_and_shows_the_secret_to_no_one(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=STEADY)
    queue = {"url": scene.url, "access_key_id": KEY, "secret_access_key": SECRET}
    options = {**OPTIONS, "predefined_queues": {scene.name: queue}}
    conf = {**OFTEN, "broker_transport_options": options}
    worker = scene.worker("-c", "1", "-P", "threads", conf=conf)
    scene.send("hold", "a")
    (extension, *_) = scene.proxy.wait_for(CHANGE)
    (keeper,) = map(psutil.Process, keepers_of(worker.pid))
    assert SECRET not in " ".join(keeper.cmdline())
    # The keeper inherits the test's own variable with the settings, and no other has the secret.
    having = [name for name, value in keeper.environ().items() if SECRET in value]
    assert having == ["PROJ_CONF"]
    scene.let_end("a")
    (delete, *_) = scene.proxy.wait_for("DeleteMessageBatch")
    (poll, *_) = scene.proxy.wait_for("ReceiveMessage")
    assert extension.access_key == delete.access_key == poll.access_key == KEY
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
