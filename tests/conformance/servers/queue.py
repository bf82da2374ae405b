"""What a behaviour test does with a queue, and how it waits without guessing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from tests.support.waiting import wait_until

#: How many polls of a second a message may take to come. LocalStack is up to 1 s late, and a busy
#: machine later. On a server that is known to hide it, a test takes all of them.
POLLS = 20
#: For long polls that must end early: the longest, and when the latest of them has ended.
LONGEST_POLL = 20
EARLY = 15.0
#: For how long a busy machine may stall between two calls, in seconds, without changing the
#: result.
STANDSTILL = 10
#: Clocks are read on both sides of a call.
ROUNDING = 0.05


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error of SQS: its codes by their last dotted segment, and its text."""

    codes: frozenset[str]
    text: str


def refusal(call: Callable[..., Any], *args: Any, **request: Any) -> Refusal:
    """Return how a call is refused. Raise an AssertionError if it is not."""
    try:
        call(*args, **request)
    except ClientError as error:
        told = error.response["Error"]
        codes = (told.get("Code", ""), told.get("QueryErrorCode", ""))
        return Refusal(
            frozenset(code.rsplit(".", 1)[-1] for code in codes), told.get("Message", "")
        )
    raise AssertionError("it was not refused")


class Queue:
    """One queue. Messages are as boto3 returns them."""

    dead_letters: Queue

    def __init__(self, client: Any, url: str) -> None:
        self.client = client
        self.url = url

    @property
    def arn(self) -> str:
        return str(self.attribute("QueueArn"))

    def attribute(self, name: str) -> str:
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=[name])
        return str(answer["Attributes"][name])

    def send(self, *bodies: str, **options: Any) -> None:
        """Send messages in this order."""
        for body in bodies:
            self.client.send_message(QueueUrl=self.url, MessageBody=body, **options)

    def send_to_group(self, group: str, *bodies: str) -> None:
        """Send messages to a group of a FIFO queue."""
        for body in bodies:
            self.send(body, MessageGroupId=group, MessageDeduplicationId=uuid.uuid4().hex)

    def receive(self, count: int = 1, **options: Any) -> list[dict[str, Any]]:
        """Return the messages of the first receive that is not empty."""
        for _ in range(POLLS):
            if messages := self.look(count, WaitTimeSeconds=1, **options):
                return messages
        raise AssertionError(f"no message came within {POLLS} polls")

    def take(self, **options: Any) -> str:
        """Receive one message and return its handle."""
        (message,) = self.receive(**options)
        return str(message["ReceiptHandle"])

    def look(self, count: int = 10, **options: Any) -> list[dict[str, Any]]:
        """Return the messages of a single receive."""
        answer = self.client.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=count, AttributeNames=["All"], **options
        )
        return list(answer.get("Messages", []))

    def comes_after(self, since: float) -> float:
        """Return how long after `since`, in monotonic seconds, a message comes."""
        self.receive()
        return time.monotonic() - since + ROUNDING

    def wait_until_visible(self, count: int = 1) -> None:
        """Return once so many messages may be received; none is."""
        wait_until(lambda: int(self.attribute("ApproximateNumberOfMessages")) >= count)

    def extend(self, handle: str, timeout: int) -> None:
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=timeout
        )

    def delete(self, handle: str) -> None:
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=handle)

    def extend_batch(self, *entries: tuple[str, str, int]) -> dict[str, Any]:
        """Extend by id, handle and timeout; return the answer."""
        return dict(
            self.client.change_message_visibility_batch(
                QueueUrl=self.url,
                Entries=[
                    {"Id": entry_id, "ReceiptHandle": handle, "VisibilityTimeout": timeout}
                    for entry_id, handle, timeout in entries
                ],
            )
        )

    def delete_batch(self, *entries: tuple[str, str]) -> dict[str, Any]:
        """Delete by id and handle; return the answer."""
        return dict(
            self.client.delete_message_batch(
                QueueUrl=self.url,
                Entries=[{"Id": entry_id, "ReceiptHandle": handle} for entry_id, handle in entries],
            )
        )


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]
