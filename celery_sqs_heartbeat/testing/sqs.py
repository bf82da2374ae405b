"""A simulated SQS with the methods of a boto3 client."""

from __future__ import annotations

import functools
import random
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from botocore import xform_name

from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.leases.message import FIFO_SUFFIX
from celery_sqs_heartbeat.sqs.names import is_queue_name
from celery_sqs_heartbeat.testing import attributes, errors, model
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.faults import Faults
from celery_sqs_heartbeat.testing.message import SimulatedMessage, check_batch_size, check_message
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue

Answer = dict[str, Any]
Request = Mapping[str, Any]

#: The most queues that one ListQueues shows (SQS API reference).
_LISTED = 1_000
#: SQS API reference, "Id" of any batch request entry.
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PREFIX = "AWS.SimpleQueueService."


class SimulatedSqs:
    """An SQS that follows AWS, in this process and on any clock.

    It has the methods of a boto3 SQS client, with the same arguments, answers and
    errors (`botocore.exceptions.ClientError`). `call` takes an operation by name. It never
    waits: a long poll that finds nothing returns at once, and the caller repeats it, as the
    HTTP server does. Not thread-safe.

    Args:
        clock: Seconds; `time.monotonic` or a `FakeClock`.
        seed: Makes handles, ids and random choices repeatable.
        faults: The faults. The caller has to cause those of the network (latency, lost requests
            and answers).
        epoch: Unix time of the clock's zero, for timestamps.
        url: The beginning of all queue URLs.

    Attributes:
        queues: By name.
        on_delete: Called with each deleted message.
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
        self.on_delete: Callable[[SimulatedMessage], None] = lambda message: None

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        operation = name.title().replace("_", "")
        if operation not in model.operations():
            raise AttributeError(f"{type(self).__name__} has no operation {name!r}")

        def method(**request: Any) -> Answer:
            try:
                return self.call(operation, request)
            except SqsError as error:
                raise error.as_client_error(operation) from None

        return method

    def call(self, operation: str, request: Request) -> Answer:
        """Do an operation, such as "ReceiveMessage", and return SQS's answer.

        Raises:
            SqsError: SQS refuses it, or a fault happened.
        """
        method_of(operation)
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
        """Do a modelled operation without faults, such as the next look of a long poll.

        Raises:
            SqsError: SQS refuses it.
        """
        answer: Answer = getattr(self, method_of(operation))(request)
        return answer

    def new_queue(self, name: str, options: QueueOptions | None = None) -> SimulatedQueue:
        """Make a queue with any options; a name that ends in `.fifo` makes a FIFO queue."""
        queue = SimulatedQueue(
            f"{self.url}/{attributes.ACCOUNT}/{name}",
            options or QueueOptions(),
            self.random,
            lambda message: self.on_delete(message),
        )
        queue.created_at = queue.modified_at = self.clock()
        self.queues[name] = queue
        return queue

    def queue(self, url_or_name: Any) -> SimulatedQueue:
        """Return a queue by its URL, with any host, or by its name.

        Raises:
            SqsError: There is no such queue.
        """
        queue = self.queues.get(str(url_or_name).rsplit("/", 1)[-1])
        if queue is None:
            raise errors.no_queue()
        return queue

    def _create_queue(self, request: Request) -> Answer:
        name, given = request["QueueName"], request.get("Attributes") or {}
        is_fifo = str(given.get("FifoQueue")).lower() == "true"
        check_queue_name(name, is_fifo=is_fifo)
        there = self.queues.get(name)
        before = there.options if there else QueueOptions()
        options = attributes.change(before, given, self.queues, is_fifo=is_fifo)
        if there is None:
            there = self.new_queue(name, options)
        old, new = (attributes.show(each, is_fifo=is_fifo) for each in (there.options, options))
        for attribute in given:
            if old.get(attribute) != new.get(attribute):
                text = "A queue already exists with the same name and a different value for"
                raise SqsError("QueueAlreadyExists", f"{text} attribute {attribute}")
        return {"QueueUrl": there.url}

    def _delete_queue(self, request: Request) -> Answer:
        del self.queues[self.queue(request["QueueUrl"]).name]
        return {}

    def _list_queues(self, request: Request) -> Answer:
        prefix, token = request.get("QueueNamePrefix") or "", request.get("NextToken") or "0"
        if not token.isdecimal():
            raise SqsError("InvalidParameterValue", "Invalid NextToken value.")
        names = [name for name in self.queues if name.startswith(prefix)]
        limit = _within(request, "MaxResults", 1, _LISTED)
        end = int(token) + (limit or _LISTED)
        answer: Answer = {}
        if urls := [self.queues[name].url for name in names[int(token) : end]]:
            answer["QueueUrls"] = urls
        if limit and end < len(names):
            answer["NextToken"] = str(end)
        return answer

    def _get_queue_url(self, request: Request) -> Answer:
        return {"QueueUrl": self.queue(request["QueueName"]).url}

    def _get_queue_attributes(self, request: Request) -> Answer:
        queue, now = self.queue(request["QueueUrl"]), self.clock()
        wanted = request.get("AttributeNames") or []
        model.check_names(wanted, model.OF_QUEUES)
        shown = {
            "QueueArn": attributes.arn(queue.name),
            "CreatedTimestamp": str(int(self.epoch + queue.created_at)),
            "LastModifiedTimestamp": str(int(self.epoch + queue.modified_at)),
            **attributes.counts(queue, now),
            **attributes.show(queue.options, is_fifo=queue.is_fifo),
        }
        if "All" not in wanted:
            shown = {name: shown[name] for name in wanted if name in shown}
        return {"Attributes": shown} if shown else {}

    def _set_queue_attributes(self, request: Request) -> Answer:
        queue, given = self.queue(request["QueueUrl"]), request["Attributes"]
        queue.options = attributes.change(queue.options, given, self.queues, is_fifo=queue.is_fifo)
        queue.modified_at = self.clock()
        return {}

    def _purge_queue(self, request: Request) -> Answer:
        self.queue(request["QueueUrl"]).purge()
        return {}

    def _send_message(self, request: Request) -> Answer:
        queue, now = self.queue(request["QueueUrl"]), self.clock()
        delay = _within(request, "DelaySeconds", 0, 900)
        check_message(request, queue.options.largest_message)
        group = request.get("MessageGroupId")
        deduplication_id = request.get("MessageDeduplicationId")
        if queue.is_fifo and group is None:
            raise errors.missing("MessageGroupId")
        reason = "The request include parameter that is not valid for this queue type"
        if queue.is_fifo and delay:
            raise errors.invalid("DelaySeconds", delay, reason)
        if not queue.is_fifo and deduplication_id is not None:
            raise errors.invalid("MessageDeduplicationId", deduplication_id, reason)
        if delay is None or queue.is_fifo:
            delay = queue.options.delay
        message = SimulatedMessage(
            message_id=str(uuid.UUID(int=self.random.getrandbits(128), version=4)),
            body=request["MessageBody"],
            sent_at=now,
            visible_at=now + delay,
            attributes=request.get("MessageAttributes") or {},
            group_id=group,
        )
        sent = queue.send(message, now, deduplication_id)
        answer = {"MessageId": sent.message_id, "MD5OfMessageBody": sent.md5}
        if queue.is_fifo:
            answer["SequenceNumber"] = str(sent.sequence_number)
        return answer

    def _send_message_batch(self, request: Request) -> Answer:
        check_batch_size(request["Entries"])
        return self._batch("SendMessageBatch", request, self._send_message)

    def _receive_message(self, request: Request) -> Answer:
        queue = self.queue(request["QueueUrl"])
        count = _within(request, "MaxNumberOfMessages", 1, 10)
        wait = _within(request, "WaitTimeSeconds", 0, 20)
        lists = ("MessageSystemAttributeNames", "AttributeNames")
        system_names = {name for each in lists for name in request.get(each) or ()}
        # The reference lists those of a queue as valid, too. SQS does not return them.
        model.check_names(system_names, model.OF_MESSAGES, model.OF_QUEUES)
        received = queue.receive(
            self.clock(),
            count=1 if count is None else count,
            timeout=_within(request, "VisibilityTimeout", 0, 43_200),
            is_long_poll=bool(queue.options.wait if wait is None else wait),
        )
        names = request.get("MessageAttributeNames") or ()
        messages = [each.as_answer(self.epoch, names, system_names) for each in received]
        return {"Messages": messages} if messages else {}

    def _change_message_visibility(self, request: Request) -> Answer:
        # An entry of a batch may lack the timeout.
        timeout = int(request.get("VisibilityTimeout", 0))
        queue = self.queue(request["QueueUrl"])
        queue.change_visibility(request["ReceiptHandle"], timeout, self.clock())
        return {}

    def _change_message_visibility_batch(self, request: Request) -> Answer:
        operation = "ChangeMessageVisibilityBatch"
        return self._batch(operation, request, self._change_message_visibility)

    def _delete_message(self, request: Request) -> Answer:
        self.queue(request["QueueUrl"]).delete(request["ReceiptHandle"], self.clock())
        return {}

    def _delete_message_batch(self, request: Request) -> Answer:
        return self._batch("DeleteMessageBatch", request, self._delete_message)

    def _batch(self, operation: str, request: Request, do: Callable[[Request], Answer]) -> Answer:
        """Do each entry. If it raises an `SqsError`, only that entry fails."""
        url, entries = request["QueueUrl"], request["Entries"]
        self.queue(url)
        _check_batch(entries)
        fault = self.faults.of(operation)
        answer: Answer = {"Successful": []}
        for entry in entries:
            try:
                if self.faults.happens(fault.entry_throttled):
                    raise errors.throttled()
                if self.faults.happens(fault.entry_failed):
                    raise errors.internal()
                done = do({**entry, "QueueUrl": url})
                answer["Successful"].append({"Id": entry["Id"], **done})
            except SqsError as error:
                answer.setdefault("Failed", []).append(error.as_entry(entry["Id"]))
        return answer


@functools.cache
def method_of(operation: str) -> str:
    """Return the name of the method that does an operation: `_send_message` for SendMessage.

    Raises:
        SqsError: It is not modelled, or SQS has none of that name.
    """
    methods = {each: f"_{xform_name(each)}" for each in model.operations()}
    modelled = [each for each, method in methods.items() if hasattr(SimulatedSqs, method)]
    if operation not in methods:
        text = f"SQS has no operation {operation!r}; use one of {', '.join(modelled)}"
        raise SqsError("InvalidAction", text)
    if operation not in modelled:
        text = f'{operation} is not modelled; see docs/testing.md, "Not modelled"'
        raise SqsError(f"{_PREFIX}UnsupportedOperation", text)
    return methods[operation]


def check_queue_name(name: str, *, is_fifo: bool) -> None:
    """Refuse a queue's name that SQS refuses.

    Raises:
        SqsError: It is too long, has other characters, or a suffix of the other kind of queue.
    """
    if is_queue_name(name) and name.endswith(FIFO_SUFFIX) is is_fifo:
        return
    text = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    if is_fifo:
        text += ". The name of a FIFO queue must end with .fifo suffix"
    elif name.endswith(FIFO_SUFFIX):
        text += ". A name that ends with .fifo needs the attribute FifoQueue=true"
    raise SqsError("InvalidParameterValue", text)


def _check_batch(entries: list[Request]) -> None:
    """Refuse a batch that SQS refuses as a whole."""
    if not entries:
        raise SqsError(f"{_PREFIX}EmptyBatchRequest", "There should be at least one entry.")
    if len(entries) > SQS.most_entries:
        text = f"Maximum number of entries per request are 10. You have sent {len(entries)}."
        raise SqsError(f"{_PREFIX}TooManyEntriesInBatchRequest", text)
    ids = [entry["Id"] for entry in entries]
    if not all(map(_ENTRY_ID.fullmatch, ids)):
        text = "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
        raise SqsError(
            f"{_PREFIX}InvalidBatchEntryId", f"{text} It can be at most 80 letters long."
        )
    if len(set(ids)) != len(ids):
        raise SqsError(f"{_PREFIX}BatchEntryIdsNotDistinct", "Two or more entries have one id.")


def _within(request: Request, name: str, low: int, high: int) -> int | None:
    """Return a number that SQS accepts, or None if the request has none."""
    value = request.get(name)
    if value is None:
        return None
    if not low <= int(value) <= high:
        raise errors.invalid(name, value, f"Must be between {low} and {high}, if provided")
    return int(value)
