"""Settings and queues reach SQS. Wrong ones, and wrong versions, are reported before a receive."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.record import CHANGE, extensions, handles, receives, timeouts_asked
from tests.acceptance.scene import LONG, STEADY, Scene, StartWorker
from tests.support.markdown import blocks
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
#: Extended after a second, with a minute to spare.
EAGER = {"sqs_heartbeat_visibility_timeout": 60, "sqs_heartbeat_threshold": 59}


@pytest.mark.fresh
def test_bad_settings_are_listed_in_one_error_and_the_worker_exits(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.send("work", "a")
    worker = scene.worker(
        "-c",
        "1",
        conf={
            "sqs_heartbeat_visibility_timeout": -1,
            "sqs_heartbeat_threshold": "x",
            "sqs_heartbeat_treshold": 5,
            "broker_transport_options": {
                "is_secure": False,
                "wait_time_seconds": "1",
                "client-config": {"read_timeout": 0, "connect_timout": 5},
            },
        },
        wait=False,
    )
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    assert "Error: sqs-heartbeat: 6 settings are wrong:" in log
    assert "sqs_heartbeat_visibility_timeout=-1: must be 1 to 43200 seconds" in log
    assert "sqs_heartbeat_threshold='x': must be a number of seconds, not str" in log
    assert "sqs_heartbeat_treshold: there is no such setting; did you mean" in log
    assert "broker_transport_options['wait_time_seconds']='1': must be a whole number" in log
    assert "['client-config']['read_timeout']=0: must be a number of seconds above 0" in log
    assert "botocore does not accept it (Got unexpected keyword argument 'connect_timout')" in log
    assert "Traceback" not in log
    assert scene.proxy.calls("ReceiveMessage") == []


#: An app whose author does not know the heartbeat. It reads its settings from `given`.
VENDOR = """
import os
from celery import Celery
app = Celery("vendor", broker=os.environ["CELERY_BROKER_URL"])
app.conf.broker_transport_options = {"region": "us-east-1", "is_secure": False}
app.config_from_object("given")

@app.task
def work(): ...
"""


@pytest.mark.parametrize(
    ("module", "args"), [("workers", ["--heartbeat-sqs"]), ("vendor", ["-P", "threads"])]
)
def test_an_app_that_others_create_gets_the_heartbeat_in_both_ways_of_the_page(
    new_scene: NewScene, start_worker: StartWorker, module: str, args: list[str]
) -> None:
    scene = new_scene()
    installing, settings = blocks("docs/howto/foreign-app.md", "python")
    given = settings if module == "vendor" else ""
    for name, text in (("vendor", VENDOR), ("given", given), ("workers", installing)):
        (scene.folder / f"{name}.py").write_text(text)
    path = os.pathsep.join((str(scene.folder), *filter(None, sys.path)))
    worker = start_worker(module, ["-Q", scene.name, *args], {"PYTHONPATH": path})
    worker.wait_for_log(f"messages of queue {scene.name} are kept")
    scene.app.send_task("vendor.work", queue=scene.name, routing_key=scene.name)
    worker.wait_for_log("succeeded")
    scene.wait_until_empty()


def test_settings_that_do_not_fit_the_queues_own_timeouts_are_listed_in_one_error(
    new_scene: NewScene,
) -> None:
    scene, fitting, short = new_scene(attributes=STEADY), new_scene(), new_scene()
    names = f"{fitting.name},{scene.name},{short.name}"
    fitting.send("work", "a")
    conf = {
        "sqs_heartbeat_queues": {
            scene.name: {"threshold": 30},
            short.name: {"max_lease": 3},
        },
        "task_annotations": {
            "tests.acceptance.proj.hold": {"sqs_heartbeat": {"threshold": 15}},
        },
    }
    worker = scene.worker("-c", "1", "-Q", names, conf=conf, wait=False)
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    task = "task 'tests.acceptance.proj.hold' on queue"
    assert "sqs-heartbeat: 4 settings are wrong:" in log
    assert f"queue '{scene.name}': threshold=30 must be below visibility_timeout=20" in log
    assert f"queue '{short.name}': max_lease=3 must be at least visibility_timeout=4" in log
    for queue in (fitting, short):
        assert f"{task} '{queue.name}': threshold=15 must be below visibility_timeout=4" in log
    assert "lower the threshold, or raise the visibility timeout" in log
    assert "Traceback" not in log
    assert "Unrecoverable" not in log
    assert scene.proxy.calls("ReceiveMessage") == []
    assert fitting.counts() == (1, 0)


def test_a_pool_that_can_not_do_what_is_set_is_named_at_the_start(new_scene: NewScene) -> None:
    refused = new_scene().worker("-P", "threads", "--autoscale=6,2", wait=False)
    assert refused.wait_for_exit() == 1
    assert "--autoscale: must not be given for pool 'thread', which can't grow" in refused.logs()
    conf = {"sqs_heartbeat_on_lost": "terminate"}
    worker = new_scene().worker("-c", "1", "-P", "threads", conf=conf)
    assert "pool thread can't stop running tasks" in worker.logs()


def test_on_another_broker_the_flag_does_nothing_and_logs_it_once(
    start_worker: StartWorker,
) -> None:
    worker = start_worker(
        "tests.acceptance.proj",
        ["--heartbeat-sqs", "-P", "solo"],
        env={"CELERY_BROKER_URL": "memory://", "PROJ_CONF": '{"broker_transport_options": {}}'},
    )
    worker.wait_for_log("ready.")
    assert worker.logs().count("sqs-heartbeat:") == 1
    assert "the broker is memory, not SQS: --heartbeat-sqs does nothing" in worker.logs()


@pytest.mark.parametrize(
    ("args", "conf", "works"),
    [
        ([], {"sqs_heartbeat_enabled": True}, True),
        (["--no-heartbeat-sqs"], {"sqs_heartbeat_enabled": True}, False),
    ],
)
def test_the_flag_overrides_the_setting(
    new_scene: NewScene, args: list[str], conf: dict[str, Any], works: bool
) -> None:
    scene = new_scene()
    scene.worker("-c", "1", "-P", "solo", *args, flag=False, conf=conf)
    scene.send("work", "a")
    scene.wait_for_notes("end", 1)
    scene.wait_until_empty()
    assert bool(scene.proxy.calls("DeleteMessageBatch")) is works
    assert bool(scene.proxy.calls("DeleteMessage")) is not works


def test_a_task_that_opted_out_is_not_extended(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.worker("-c", "2", "-P", "threads", conf=EAGER)
    scene.send("unleased", "a")
    began = scene.wait_for_notes("start", 1)[0].at
    scene.send("hold", "b")
    scene.wait_until(lambda: len(handles(scene)) == 2)
    _, other = handles(scene)
    scene.wait_until(lambda: extensions(scene)[other] >= 3)
    for key in ("a", "b"):
        scene.let_end(key)
    scene.wait_until_empty()
    # A late message is extended before it is known that its task opted out.
    extended = {
        entry["ReceiptHandle"]
        for call in scene.calls(CHANGE)
        if call.started_at > began
        for entry in call.entries
    }
    assert extended == {other}


RENAMED = "tests.acceptance.renamed"


def start(scene: Scene, *args: str) -> ProcessWorker:
    return scene.start_worker(
        RENAMED,
        ["-Q", scene.name, "-c", "1", *args],
        env={
            "PROJ_LEDGER": str(scene.ledger),
            "PROJ_CONF": json.dumps({"task_default_queue": scene.name}),
        },
    )


@pytest.mark.fresh
@pytest.mark.versions
def test_a_worker_does_not_start_without_a_name_that_it_needs(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.send("work", "a")
    worker = start(scene, "--heartbeat-sqs")
    assert worker.wait_for_exit() == 1
    log = worker.logs()
    assert "Error: sqs-heartbeat: the installed versions do not work together:" in log
    assert "  - kombu.transport.SQS:Channel._schedule_queue is missing" in log
    assert "--no-heartbeat-sqs" in log
    assert "Traceback (most recent" not in log
    assert scene.proxy.calls("ReceiveMessage") == []


OPTIONS: dict[str, Any] = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1}


def test_messages_of_each_queue_are_held_by_its_own_visibility_timeout(
    new_scene: NewScene,
) -> None:
    own = new_scene(attributes={"VisibilityTimeout": "80"})
    set_, made = new_scene(attributes=LONG), new_scene()
    # The worker creates the third one again.
    made.client.delete_queue(QueueUrl=made.url)
    conf = {
        # Each is extended once, ten seconds after its receive.
        "sqs_heartbeat_queues": {
            own.name: {"threshold": 70},
            set_.name: {"visibility_timeout": 70, "threshold": 60},
            made.name: {"threshold": 80},
        },
        "broker_transport_options": {**OPTIONS, "visibility_timeout": 90},
    }
    names = ",".join(scene.name for scene in (own, set_, made))
    own.worker("-c", "6", "-Q", names, orders=True, conf=conf)
    for scene in (own, set_, made):
        scene.send("hold", scene.name)
        scene.send("work", f"short {scene.name}")
    own.wait_for_notes("start", 6)
    for scene in (own, set_, made):
        # On a slow machine, the short one may be extended, too.
        scene.wait_until(lambda scene=scene: extensions(scene))
    own.wait_until(lambda: own.leases() == 3)
    for scene in (own, set_, made):
        own.let_end(scene.name)
    own.wait_for_notes("end", 6)
    own.wait_for_no_lease()
    for scene, timeout in ((own, 80), (set_, 70), (made, 90)):
        scene.wait_until_empty()
        assert len(receives(scene)) == 2
        assert set(timeouts_asked(scene)) == {timeout}


@pytest.mark.versions
def test_a_worker_whose_tasks_take_long_leaves_the_next_ones_to_others(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "2")
    scene.send("work", "a")
    # From its end on, the worker knows the pace.
    scene.wait_until_empty()
    # The open poll, which may bring several, began before.
    scene.send("hold", "b")
    scene.wait_for_notes("start", 2)
    for key in "cde":
        scene.send("hold", key)
    scene.worker("-c", "2")
    scene.wait_for_notes("start", 5)
