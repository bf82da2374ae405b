"""A simulated SQS on a clock that only tests move, and the requests that tests send to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs

FIFO = {"FifoQueue": "true"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sqs(clock: FakeClock) -> SimulatedSqs:
    return SimulatedSqs(clock)


def code_of(call: Any, **request: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**request)
    return str(refused.value.response["Error"]["Code"]).rsplit(".", 1)[-1]


def create(sqs: Any, name: str = "work", **attributes: str) -> str:
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def attributes_of(sqs: Any, url: str) -> dict[str, str]:
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    return dict(answer["Attributes"])


def arn(name: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{name}"


def redrive(name: str, count: Any = 3) -> str:
    return json.dumps({"deadLetterTargetArn": name, "maxReceiveCount": count})
