"""A simulated SQS with the face of a boto3 client."""

from __future__ import annotations

import math
import random
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.attributes import (
    ACCOUNT,
    check_names,
    difference,
    get_attributes,
    set_attributes,
)
from celery_sqs_heartbeat.testing.batches import answer_batch
from celery_sqs_heartbeat.testing.contents import check_batch_size, check_id, check_message
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.faults import Faults
from celery_sqs_heartbeat.testing.message import SimulatedMessage, md5
from celery_sqs_heartbeat.testing.names import check_name
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue

Answer = dict[str, Any]
Request = Mapping[str, Any]


#: How long after a queue's deletion its name, and after a purge another one, is refused, in
#: seconds (SQS API reference, QueueDeletedRecently and PurgeQueueInProgress).
PAUSE_SECONDS = 60.0
#: The most queues that one ListQueues shows (SQS API reference).
LISTED = 1_000
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
        self._deleted: dict[str, float] = {}
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
        answer = self.perform(operation, request)
        if self.faults.happens(fault.failed_after):
            raise errors.internal()
        return answer

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
        queue.created_at = queue.modified_at = self.clock()
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
        check_name(name, is_fifo=str(attributes.get("FifoQueue")).lower() == "true")
        now = self.clock()
        if now < self._deleted.get(name, -math.inf) + PAUSE_SECONDS:
            raise errors.deleted_recently()
        if name not in self.queues:
            try:
                set_attributes(self, self.new_queue(name), attributes)
            except SqsError:
                del self.queues[name]
                raise
        elif other := difference(self.queues[name], attributes):
            raise errors.other_queue(other)
        return {"QueueUrl": self.queues[name].url}

    def _delete_queue(self, request: Request) -> Answer:
        name = self.queue(request["QueueUrl"]).name
        del self.queues[name]
        self._deleted[name] = self.clock()
        return {}

    def _list_queues(self, request: Request) -> Answer:
        prefix = request.get("QueueNamePrefix") or ""
        names = [name for name in self.queues if name.startswith(prefix)]
        begin = int(request.get("NextToken") or 0)
        limit = _within("MaxResults", request.get("MaxResults"), 1, LISTED)
        end = begin + (limit or LISTED)
        answer: Answer = {}
        if urls := [self.queues[name].url for name in names[begin:end]]:
            answer["QueueUrls"] = urls
        if limit and end < len(names):
            answer["NextToken"] = str(end)
        return answer

    def _get_queue_url(self, request: Request) -> Answer:
        return {"QueueUrl": self.queue(request["QueueName"]).url}

    def _get_queue_attributes(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        wanted = request.get("AttributeNames") or []
        check_names(wanted)
        attributes = get_attributes(queue, self.clock())
        for name, at in (
            ("CreatedTimestamp", queue.created_at),
            ("LastModifiedTimestamp", queue.modified_at),
        ):
            attributes[name] = str(int(self.epoch + at))
        if "All" not in wanted:
            attributes = {name: attributes[name] for name in wanted if name in attributes}
        return {"Attributes": attributes} if attributes else {}

    def _set_queue_attributes(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        set_attributes(self, queue, request["Attributes"])
        queue.modified_at = self.clock()
        return {}

    def _purge_queue(self, request: Request) -> Answer:
        queue, now = self.queue(request["QueueUrl"]), self.clock()
        if now < queue.purged_at + PAUSE_SECONDS:
            raise errors.purge_in_progress(queue.name)
        queue.purge()
        queue.purged_at = now
        return {}

    def _send_message(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        now = self.clock()
        group = request.get("MessageGroupId")
        deduplication_id = request.get("MessageDeduplicationId")
        body, attributes = request["MessageBody"], request.get("MessageAttributes") or {}
        delay = _within("DelaySeconds", request.get("DelaySeconds"), 0, 900)
        check_message(body, attributes, queue.options.largest_message)
        check_id("MessageGroupId", group)
        check_id("MessageDeduplicationId", deduplication_id)
        if queue.is_fifo and group is None:
            raise errors.missing("MessageGroupId")
        text = "The request include parameter that is not valid for this queue type"
        if queue.is_fifo and delay:
            raise errors.out_of_range("DelaySeconds", delay, text)
        if not queue.is_fifo and deduplication_id is not None:
            raise errors.out_of_range("MessageDeduplicationId", deduplication_id, text)
        if delay is None or queue.is_fifo:
            delay = queue.options.delay
        message = SimulatedMessage(
            message_id=str(uuid.UUID(int=self.random.getrandbits(128), version=4)),
            body=body,
            sent_at=now,
            visible_at=now + delay,
            attributes=attributes,
            group_id=group,
        )
        sent = queue.send(message, now, deduplication_id)
        answer = {"MessageId": sent.message_id, "MD5OfMessageBody": md5(sent.body)}
        if queue.is_fifo:
            answer["SequenceNumber"] = str(sent.sequence_number)
        return answer

    def _send_message_batch(self, request: Request) -> Answer:
        url = request["QueueUrl"]
        check_batch_size(request.get("Entries"))
        return self._batch(
            "SendMessageBatch", request, lambda e: self._send_message({**e, "QueueUrl": url})
        )

    def _receive_message(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        count = _within("MaxNumberOfMessages", request.get("MaxNumberOfMessages"), 1, 10)
        wait = _within("WaitTimeSeconds", request.get("WaitTimeSeconds"), 0, 20)
        received = queue.receive(
            self.clock(),
            count=1 if count is None else count,
            timeout=_within("VisibilityTimeout", request.get("VisibilityTimeout"), 0, 43_200),
            is_long_poll=bool(queue.options.wait if wait is None else wait),
        )
        names = {
            *(request.get("MessageSystemAttributeNames") or ()),
            *(request.get("AttributeNames") or ()),
        }
        chosen = request.get("MessageAttributeNames") or ()
        messages = [message.as_answer(self.epoch, chosen) for message in received]
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
