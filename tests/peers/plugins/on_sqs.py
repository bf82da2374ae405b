"""Runs Celery's integration tests on SQS, which has no broadcast, with any worker.

Where their manager would send the worker a broadcast, it looks at the queue or sends a task.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

import pytest
from celery.contrib.testing.manager import ManagerMixin
from celery.contrib.testing.tasks import ping
from celery.result import allow_join_result

from tests.support.clients import sqs_client

#: How long to wait for a task that a test left, for example one with a far ETA, in seconds.
_IDLE_WITHIN = 5.0
_POLL = 0.1
#: For the answer of a worker that is busy, in seconds.
_PING_SECONDS = 20.0
#: For the worker's start, and for its end, in seconds.
_WORKER_SECONDS = 60.0


class _Inspect:
    """Answers for the only worker."""

    def ping(self) -> dict[str, dict[str, Any]]:
        """Make it run a task."""
        with allow_join_result():
            return {"worker": {"ok": ping.delay().get(timeout=_PING_SECONDS)}}

    def active(self) -> dict[str, Any]:
        """Return nothing: it is printed only."""
        return {}

    reserved = stats = active


def _inspect(self: ManagerMixin, timeout: float = 0.0) -> _Inspect:
    return _Inspect()


@pytest.fixture(scope="session")
def celery_worker_parameters() -> dict[str, float]:
    """Wait longer for the worker's start and end than Celery does: others may be busy."""
    return {"ping_task_timeout": _WORKER_SECONDS, "shutdown_timeout": _WORKER_SECONDS}


@pytest.fixture(scope="session", autouse=True)
def running_worker(celery_session_worker: Any) -> None:
    """Start the worker: some tests count on those before them to have done so."""


@cache
def _client() -> Any:
    return sqs_client(os.environ["PEERS_SQS"])


def _wait_until_idle(self: ManagerMixin) -> None:
    """Wait for the queue to be empty; then purge it. Celery asks the worker by broadcast."""
    url = _client().get_queue_url(QueueName=self.app.conf.task_default_queue)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    deadline = time.monotonic() + _IDLE_WITHIN
    while time.monotonic() < deadline:
        counts = _client().get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        if not any(int(count) for count in counts.values()):
            return
        time.sleep(_POLL)
    _client().purge_queue(QueueUrl=url)


ManagerMixin.wait_until_idle = _wait_until_idle
ManagerMixin.inspect = _inspect
