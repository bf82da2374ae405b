"""A message is sent again, with all that its sender put into it, and deleted; or else released."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.keeper.message_sender import MessageSender
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.leases.message import content_of
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.testing import FakeClock

QUEUE = "https://sqs/1/q"


class Client:
    """A client of SQS that keeps the parameters of each message that it sends."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self._error = error

    def send_message(self, **parameters: Any) -> dict[str, str]:
        self.sent.append(parameters)
        if self._error:
            raise self._error
        return {"MessageId": "copy"}


def replace(
    client: Client, message: dict[str, Any], *, after: float = 0.0
) -> tuple[Goal, str] | None:
    """Send a message again so many seconds after its receive. Return how its lease ends."""
    clock, sqs = FakeClock(), BotoSqs(client)
    keeper = ThreadKeeper(sqs, clock=clock, terms=LeaseTerms.of(30))
    keeper.receive(QUEUE, message)
    clock.advance(after)
    sender = MessageSender(keeper, sqs.send_message, lambda job: job())
    assert sender.send_again("h", content_of(message), 1000.5, "shutdown")
    assert sender.wait(0) == 0
    lease = keeper.find("h")
    return lease and (lease.goal, lease.cause)


def message(**more: Any) -> dict[str, Any]:
    attributes = {"MessageGroupId": "tenant"}
    return {"MessageId": "m", "ReceiptHandle": "h", "Body": "b", "Attributes": attributes, **more}


@pytest.mark.parametrize("binary", [b"\x00\xff", "AP8="], ids=["from boto3", "from the event loop"])
def test_a_copy_has_the_body_attributes_and_tenant_of_its_message(binary: bytes | str) -> None:
    text = {"DataType": "String", "StringValue": "t"}
    received = {"text": text, "bytes": {"DataType": "Binary", "BinaryValue": binary, "Lists": []}}
    client = Client()
    assert replace(client, message(MessageAttributes=received)) == (Goal.DELETE, "sent again")
    assert client.sent == [
        {
            "QueueUrl": QUEUE,
            "MessageBody": "b",
            "MessageAttributes": {
                "text": text,
                "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
            },
            # The longest that SQS allows, and not the queue's own.
            "DelaySeconds": 900,
            "MessageGroupId": "tenant",
        }
    ]


def test_without_an_answer_it_is_released() -> None:
    client = Client(TimeoutError("no answer"))
    assert replace(client, message()) == (Goal.RELEASE, "shutdown")


def test_a_message_that_may_be_someone_elses_is_not_sent_again() -> None:
    assert replace(Client(), message(), after=29.9) == (Goal.DELETE, "sent again")
    client = Client()
    # Nor is it released, because its lease has expired.
    assert replace(client, message(), after=30.0) is None
    assert client.sent == []
