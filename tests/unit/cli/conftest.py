"""A simulated SQS with queues for all tests of commands, and apps whose broker it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner, Result

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli import pages, queues, sqs_heartbeat
from celery_sqs_heartbeat.sqs import clients
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.insides import hide_shared_tasks
from tests.support.waiting import PATIENCE

#: Settings of a sound app: a test looks only at what it changed.
SOUND = {
    "task_acks_late": True,
    "task_acks_on_failure_or_timeout": False,
    "task_time_limit": 600,
    "worker_eta_task_limit": 100,
    "worker_concurrency": 2,
    "sqs_heartbeat_enabled": True,
    "task_default_queue": "work",
    "broker_transport_options": {"region": "us-east-1", "is_secure": False},
}
#: Nothing listens there.
NOWHERE = "sqs://k:s@127.0.0.1:1"
#: Like the one that Celery makes if the command line names no app.
MADE_UP = Celery("default", fixups=[], set_as_current=False, loader="default")
#: Attributes of the queues, and the name of the dead-letter queue and its maxReceiveCount.
QUEUES: dict[str, tuple[dict[str, str], tuple[str, int] | None]] = {
    "work": ({}, ("dead", 5)),
    "few": ({}, ("dead", 2)),
    "fewer": ({}, ("dead", 1)),
    "q2": ({"VisibilityTimeout": "5"}, None),
    "q10": ({"VisibilityTimeout": "5"}, None),
    "secret": ({"KmsMasterKeyId": "alias/ours"}, None),
    "prod-work": ({}, None),
    "a.fifo": ({"FifoQueue": "true"}, ("dead.fifo", 5)),
    "b.fifo": ({"FifoQueue": "true"}, ("lost.fifo", 5)),
}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call take as long as it needs, and hide the tasks of other tests."""
    hide_shared_tasks(monkeypatch)
    monkeypatch.setattr(queues, "_PATIENT", 2 * PATIENCE)
    monkeypatch.setattr(clients, "MAX_TIMEOUT", PATIENCE)
    monkeypatch.setattr(pages, "PATIENCE", PATIENCE)


@pytest.fixture(scope="session")
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer() as server:
        client = server.client()
        for name in ("dead", "dead.fifo", "lost.fifo"):
            is_fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
            url = client.create_queue(QueueName=name, Attributes=is_fifo)["QueueUrl"]
        for name, (attributes, dead) in QUEUES.items():
            if dead:
                arn = f"arn:aws:sqs:us-east-1:000000000000:{dead[0]}"
                policy = {"deadLetterTargetArn": arn, "maxReceiveCount": dead[1]}
                attributes = {**attributes, "RedrivePolicy": json.dumps(policy)}
            client.create_queue(QueueName=name, Attributes=attributes)
        # SQS knows it no longer, only a redrive policy does.
        client.delete_queue(QueueUrl=url)
        yield server


def app_at(broker: str, *, options: dict[str, Any] | None = None, **conf: Any) -> Any:
    """Return a sound app, changed by these settings and transport options."""
    app = install(Celery("proj", broker=broker, set_as_current=False))
    app.conf.update({**SOUND, **conf})
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, **(options or {})}
    return app


Run = Callable[..., Result]


def run(app: Any, line: str, **options: Any) -> Result:
    """Run a command of the package in this process."""
    runner = CliRunner(env={"COLUMNS": "100", **options.pop("env", {})})
    context = SimpleNamespace(app=app, no_color=False)
    return runner.invoke(sqs_heartbeat, line.split(), obj=context, **options)
