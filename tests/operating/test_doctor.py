"""`celery -A proj sqs-heartbeat doctor` and `iam`, in processes as a user runs them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.waiting import PATIENCE
from tests.support.warm.client import run_forked
from tests.support.workers import ROOT, SAFE_ENV
from tests.unit.cli.conftest import SOUND

PROJ = f"""
import os
from celery import Celery
from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli import queues
from celery_sqs_heartbeat.sqs import clients

# Each call may take as long as it needs.
queues._PATIENT, clients.MAX_TIMEOUT = {2 * PATIENCE}, {PATIENCE}
app = install(Celery("proj", broker=os.environ["PROJ_BROKER"]))
app.conf.update({SOUND!r})
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
def run(tmp_path: Path) -> Callable[..., Any]:
    (tmp_path / "proj.py").write_text(PROJ)

    def run(*args: str, broker: str) -> Any:
        path = f"{tmp_path}{os.pathsep}{ROOT}"
        own = {"COLUMNS": "100", "PYTHONPATH": path, "PROJ_BROKER": broker}
        command = [sys.executable, "-m", "celery", "-A", "proj", "sqs-heartbeat", *args]
        return run_forked(command, env={**os.environ, **SAFE_ENV, **own}, cwd=tmp_path)

    return run


def test_a_sound_queue_passes_and_has_a_policy(
    run: Callable[..., Any], server: SimulatedServer
) -> None:
    ended = run("doctor", "--strict", broker=server.broker_url)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    lines = ended.stdout.splitlines()
    assert "OK       queue work: the queue exists: visibility timeout 30 s" in lines
    assert lines[-1].startswith("0 errors, 0 warnings, ")
    assert "testing" not in ended.stdout
    as_json = run("doctor", "--json", "-Q", "work,elsewhere", broker=server.broker_url)
    assert as_json.returncode == 2
    worst = json.loads(as_json.stdout)[0]
    assert (worst["id"], worst["queue"]) == ("SQSHB-E220", "elsewhere")
    (consume, *_) = json.loads(run("iam", broker=server.broker_url).stdout)["Statement"]
    assert consume["Resource"] == "arn:aws:sqs:us-east-1:000000000000:work"


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        ("sqs://AKIDEXAMPLE:wJalrXUtnFEMI@127.0.0.1:1", "SQS can't be reached"),
        ("sqs://AKIDEXAMPLE:wJal/rXUtnFEMI:@", "broker_url can't be read"),
    ],
)
def test_a_broker_that_can_not_be_used_is_a_finding_without_its_keys(
    run: Callable[..., Any], broker: str, said: str
) -> None:
    ended = run("doctor", broker=broker)
    assert ended.returncode == 2
    assert said in ended.stdout
    for secret in ("Traceback", "rXUtnFEMI", "AKIDEXAMPLE"):
        assert secret not in ended.stdout + ended.stderr
