"""A simulated SQS with the face of a boto3 client."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.attributes import ACCOUNT, get_attributes, set_attributes
from celery_sqs_heartbeat.testing.batches import answer_batch
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.faults import Faults
from celery_sqs_heartbeat.testing.message import SimulatedMessage, md5
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue

Answer = dict[str, Any]
Request = Mapping[str, Any]


#: What it can do.
OPERATIONS = frozenset(
    (
        "ChangeMessageVisibility",
        "ChangeMessageVisibilityBatch",
        "CreateQueue",
        "DeleteMessage",
        "DeleteMessageBatch",
        "DeleteQueue",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
        "SendMessageBatch",
        "SetQueueAttributes",
    )
)


class SimulatedSqs:
    """An SQS that follows AWS, in this process and on any clock.

    Its methods are those of a boto3 SQS client, with the same arguments, answers and
    errors (`botocore.exceptions.ClientError`); `call` takes an operation by name. It never
    waits: a long poll that finds nothing answers at once, for the caller to repeat (the
    HTTP server does). Not thread-safe.

    Args:
        clock: Seconds; `time.monotonic` or a `FakeClock`.
        seed: Makes handles, ids and chance repeatable.
        faults: What goes wrong. Those of the network (latency, lost requests and answers)
            are for whoever carries the calls.
        epoch: Unix time of the clock's zero, for timestamps.
        url: What the queue URLs begin with.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        epoch: float | None = None,
        url: str = "https://sqs.us-east-1.amazonaws.com",
    ) -> None:
        self.clock = clock
        self.faults = faults or Faults(seed=seed)
        self.epoch = time.time() - clock() if epoch is None else epoch
        self.url = url
        self.random = random.Random(seed)
        self.queues: dict[str, SimulatedQueue] = {}
        #: Told of each message that is deleted.
        self.on_delete: Callable[[SimulatedMessage], None] = lambda message: None

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        operation = name.title().replace("_", "")
        if operation not in OPERATIONS:
            raise AttributeError(f"{type(self).__name__} has no operation {name!r}")

        def method(**request: Any) -> Answer:
            try:
                return self.call(operation, request)
            except SqsError as error:
                raise error.as_client_error(operation) from None

        return method

    def call(self, operation: str, request: Request) -> Answer:
        """Do an operation, as "ReceiveMessage", and return SQS's answer.

        Raises:
            SqsError: As SQS refuses it, or as the faults have it.
        """
        if operation not in OPERATIONS:
            raise SqsError("InvalidAction", f"The action {operation} is not valid.")
        fault = self.faults.of(operation)
        if self.faults.happens(fault.denied):
            raise errors.denied(operation)
        if self.faults.happens(fault.throttled):
            raise errors.throttled()
        if self.faults.happens(fault.failed):
            raise errors.internal()
        return self.perform(operation, request)

    def perform(self, operation: str, request: Request) -> Answer:
        """Do an operation that was not refused by the faults; a long poll's next look.

        Raises:
            SqsError: As SQS refuses it.
        """
        answer: Answer = getattr(self, "_" + _snake_case(operation))(request)
        return answer

    def new_queue(self, name: str, options: QueueOptions | None = None) -> SimulatedQueue:
        """Make a queue of any options; a name that ends in `.fifo` makes a FIFO queue."""
        queue = SimulatedQueue(
            f"{self.url}/{ACCOUNT}/{name}",
            options or QueueOptions(),
            self.random,
            lambda message: self.on_delete(message),
        )
        self.queues[name] = queue
        return queue

    def queue(self, url_or_name: Any) -> SimulatedQueue:
        """Return a queue by its URL, whatever its host, or by its name.

        Raises:
            SqsError: There is none.
        """
        queue = self.queues.get(str(url_or_name).rsplit("/", 1)[-1])
        if queue is None:
            raise errors.no_queue()
        return queue

    # -- Operations, each by its boto3 name ------------------------------------------

    def _create_queue(self, request: Request) -> Answer:
        name = request["QueueName"]
        attributes = request.get("Attributes") or {}
        if name.endswith(".fifo") is not (str(attributes.get("FifoQueue")).lower() == "true"):
            raise errors.out_of_range(
                "QueueName", name, "The name of a FIFO queue, and only that, ends in .fifo"
            )
        if name not in self.queues:
            set_attributes(self, self.new_queue(name), attributes)
        return {"QueueUrl": self.queues[name].url}

    def _delete_queue(self, request: Request) -> Answer:
        del self.queues[self.queue(request["QueueUrl"]).name]
        return {}

    def _list_queues(self, request: Request) -> Answer:
        prefix = request.get("QueueNamePrefix") or ""
        urls = [queue.url for name, queue in self.queues.items() if name.startswith(prefix)]
        return {"QueueUrls": urls} if urls else {}

    def _get_queue_url(self, request: Request) -> Answer:
        return {"QueueUrl": self.queue(request["QueueName"]).url}

    def _get_queue_attributes(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        attributes = get_attributes(queue, self.clock())
        wanted = request.get("AttributeNames") or []
        if "All" not in wanted:
            attributes = {name: attributes[name] for name in wanted if name in attributes}
        return {"Attributes": attributes} if attributes else {}

    def _set_queue_attributes(self, request: Request) -> Answer:
        set_attributes(self, self.queue(request["QueueUrl"]), request["Attributes"])
        return {}

    def _purge_queue(self, request: Request) -> Answer:
        self.queue(request["QueueUrl"]).purge()
        return {}

    def _send_message(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        now = self.clock()
        group = request.get("MessageGroupId")
        delay = _within("DelaySeconds", request.get("DelaySeconds"), 0, 900) or 0
        if queue.is_fifo and group is None:
            raise errors.missing("MessageGroupId")
        if queue.is_fifo and delay:
            text = "The request include parameter that is not valid for this queue type"
            raise errors.out_of_range("DelaySeconds", delay, text)
        message = SimulatedMessage(
            message_id=str(uuid.UUID(int=self.random.getrandbits(128), version=4)),
            body=request["MessageBody"],
            sent_at=now,
            visible_at=now + delay,
            attributes=request.get("MessageAttributes") or {},
            group_id=group,
        )
        sent = queue.send(message, now, request.get("MessageDeduplicationId"))
        answer = {"MessageId": sent.message_id, "MD5OfMessageBody": md5(sent.body)}
        if queue.is_fifo:
            answer["SequenceNumber"] = str(sent.sequence_number)
        return answer

    def _send_message_batch(self, request: Request) -> Answer:
        url = request["QueueUrl"]
        return self._batch(
            "SendMessageBatch", request, lambda e: self._send_message({**e, "QueueUrl": url})
        )

    def _receive_message(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        count = _within("MaxNumberOfMessages", request.get("MaxNumberOfMessages"), 1, 10)
        received = queue.receive(
            self.clock(),
            count=1 if count is None else count,
            timeout=_within("VisibilityTimeout", request.get("VisibilityTimeout"), 0, 43_200),
            is_long_poll=bool(_within("WaitTimeSeconds", request.get("WaitTimeSeconds"), 0, 20)),
        )
        names = {
            *(request.get("MessageSystemAttributeNames") or ()),
            *(request.get("AttributeNames") or ()),
        }
        messages = [message.as_answer(self.epoch) for message in received]
        for message in messages:
            shown = message.pop("Attributes")
            if not names & {"All", "ALL"}:
                shown = {name: value for name, value in shown.items() if name in names}
            if shown:
                message["Attributes"] = shown
        return {"Messages": messages} if messages else {}

    def _change_message_visibility(self, request: Request) -> Answer:
        self.queue(request["QueueUrl"]).change_visibility(
            request["ReceiptHandle"], int(request["VisibilityTimeout"]), self.clock()
        )
        return {}

    def _change_message_visibility_batch(self, request: Request) -> Answer:
        url = request["QueueUrl"]
        return self._batch(
            "ChangeMessageVisibilityBatch",
            request,
            lambda e: self._change_message_visibility(
                {"VisibilityTimeout": 0, **e, "QueueUrl": url}
            ),
        )

    def _delete_message(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        queue.delete(request["ReceiptHandle"], self.clock())
        return {}

    def _delete_message_batch(self, request: Request) -> Answer:
        url = request["QueueUrl"]
        return self._batch(
            "DeleteMessageBatch", request, lambda e: self._delete_message({**e, "QueueUrl": url})
        )

    def _batch(self, operation: str, request: Request, do: Callable[[Request], Answer]) -> Answer:
        self.queue(request["QueueUrl"])
        return answer_batch(request.get("Entries"), do, self.faults, operation)


def _within(name: str, value: Any, low: int, high: int) -> int | None:
    """Return a number that SQS takes, or None where the request has none.

    Raises:
        SqsError: It is out of range (SQS API reference, of the parameter).
    """
    if value is not None and not low <= int(value) <= high:
        raise errors.out_of_range(name, value, f"Must be between {low} and {high}, if provided")
    return None if value is None else int(value)


def _snake_case(operation: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
