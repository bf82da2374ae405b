"""Long polls of the simulated SQS, on a machine that stalls."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from celery_sqs_heartbeat.testing import shared
from celery_sqs_heartbeat.testing.shared import SharedSqs


@pytest.mark.parametrize(
    ("stall", "received"),
    [
        pytest.param(0.0, 1, id="no stall"),
        # It would be the answer to a worker that was killed, and hidden for another timeout.
        pytest.param(9.0, 0, id="the message is visible only after the end of the poll"),
    ],
)
def test_a_poll_receives_nothing_after_its_end(
    monkeypatch: pytest.MonkeyPatch, stall: float, received: int
) -> None:
    now = 100.0

    def wait(condition: threading.Condition, timeout: float) -> bool:
        nonlocal now
        del condition
        now += timeout + stall
        return False

    monkeypatch.setattr(
        shared, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda seconds: None)
    )
    monkeypatch.setattr(threading.Condition, "wait", wait)
    sqs = SharedSqs()
    url = sqs.call("CreateQueue", {"QueueName": "work"})["QueueUrl"]
    sqs.call("SendMessage", {"QueueUrl": url, "MessageBody": "a"})
    assert sqs.call("ReceiveMessage", {"QueueUrl": url, "VisibilityTimeout": 5})
    answer = sqs.call("ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 10})
    assert len(answer.get("Messages", ())) == received
    now += 60
    assert sqs.call("ReceiveMessage", {"QueueUrl": url})["Messages"]
