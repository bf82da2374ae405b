"""`celery -A proj sqs-heartbeat doctor` and `iam`, in processes as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.waiting import PATIENCE
from tests.support.warm.client import run_forked
from tests.support.workers import ROOT, SAFE_ENV

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PROJ = f"""
import os
from celery import Celery
from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli import queues
from celery_sqs_heartbeat.sqs import clients

# Each call may take as long as it needs.
queues._PATIENT, clients.MAX_TIMEOUT = {2 * PATIENCE}, {PATIENCE}
app = install(Celery("proj", broker=os.environ["PROJ_BROKER"]))
app.conf.update(
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    task_time_limit=600,
    worker_eta_task_limit=100,
    sqs_heartbeat_enabled=True,
    task_default_queue="work",
    broker_transport_options={{"region": "us-east-1", "is_secure": False}},
)

@app.task
def add(x, y):
    return x + y
"""


@pytest.fixture(scope="module")
def server() -> Iterator[SimulatedServer]:
    """A server with a sound queue."""
    with SimulatedServer() as server:
        client = server.client()
        client.create_queue(QueueName="dead")
        arn = "arn:aws:sqs:us-east-1:000000000000:dead"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
        client.create_queue(QueueName="work", Attributes={"RedrivePolicy": policy})
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "proj.py").write_text(PROJ)

    def run(*args: str, broker: str, app: tuple[str, ...] = ("-A", "proj")) -> Any:
        return run_forked(
            [sys.executable, "-m", "celery", *app, "sqs-heartbeat", *args],
            env={
                **os.environ,
                **SAFE_ENV,
                "COLUMNS": "100",
                "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
                "PROJ_BROKER": broker,
            },
            cwd=tmp_path,
        )

    return run


def test_a_sound_queue_passes(run: Run, server: SimulatedServer) -> None:
    ended = run("doctor", "--strict", broker=server.broker_url)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    assert "OK       queue work: the queue exists: visibility timeout 30 s" in lines
    assert lines[-1].startswith("0 errors, 0 warnings, ")
    assert "testing" not in ended.stdout
    as_json = run("doctor", "--json", "-Q", "work,elsewhere", broker=server.broker_url)
    assert as_json.returncode == 2
    fields = {"severity", "id", "title", "why", "fix", "queue", "setting", "value"}
    findings = json.loads(as_json.stdout)
    assert {frozenset(each) for each in findings} == {frozenset(fields)}
    assert [(each["id"], each["queue"]) for each in findings[:1]] == [("SQSHB-E220", "elsewhere")]


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        ("sqs://AKIDEXAMPLE:wJalrXUtnFEMI@127.0.0.1:1", "SQS can't be reached"),
        ("sqs://AKIDEXAMPLE:wJal/rXUtnFEMI:@", "broker_url can't be read"),
    ],
)
def test_a_broker_that_can_not_be_used_is_a_finding_without_its_keys(
    run: Run, broker: str, said: str
) -> None:
    ended = run("doctor", broker=broker)
    assert ended.returncode == 2
    assert said in ended.stdout
    for secret in ("Traceback", "rXUtnFEMI", "AKIDEXAMPLE"):
        assert secret not in ended.stdout + ended.stderr
