"""What a behaviour test does with a queue, and how it waits without guessing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tests.support.waiting import wait_until

#: How many polls of a second a message may take to come. LocalStack is up to 1 s late, and a busy
#: machine later. On a server that is known to hide it, a test takes all of them.
POLLS = 20
#: For how long a busy machine may stall between two calls, in seconds, without changing the
#: result.
STANDSTILL = 10
#: Clocks are read on both sides of a call.
ROUNDING = 0.05


def refusal(call: Callable[..., Any], *args: Any, **request: Any) -> str:
    """Return how a call is refused: the codes of the error and its text."""
    try:
        call(*args, **request)
    except ClientError as refused:
        error = refused.response["Error"]
        return f"{error.get('Code')} {error.get('QueryErrorCode')} {error.get('Message')}"
    raise AssertionError("it was not refused")


class Queue:
    """One queue. Messages are as boto3 returns them."""

    def __init__(self, client: Any, url: str, dead_letters: Any) -> None:
        self.client = client
        self.url = url
        self.dead_letters = dead_letters

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

    def extend_batch(self, *entries: tuple[str, str], timeout: int = 5) -> str:
        """Extend by id and handle; return the ids that succeeded and those that failed."""
        return self._batch(
            self.client.change_message_visibility_batch, entries, VisibilityTimeout=timeout
        )

    def delete_batch(self, *entries: tuple[str, str]) -> str:
        """Delete by id and handle; return the ids that succeeded and those that failed."""
        return self._batch(self.client.delete_message_batch, entries)

    def _batch(self, call: Callable[..., Any], entries: Any, **options: Any) -> str:
        answer = call(
            QueueUrl=self.url,
            Entries=[{"Id": each, "ReceiptHandle": handle, **options} for each, handle in entries],
        )
        ids = [[e["Id"] for e in answer.get(kind, [])] for kind in ("Successful", "Failed")]
        return f"{' '.join(ids[0])} | {' '.join(ids[1])}"


def bodies(messages: list[dict[str, Any]]) -> str:
    return " ".join(message["Body"] for message in messages)
