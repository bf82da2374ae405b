"""The calls about messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.account import Account
from celery_sqs_heartbeat.testing.attribute_names import OF_MESSAGES, OF_RECEIVES, check_names
from celery_sqs_heartbeat.testing.batches import answer_batch
from celery_sqs_heartbeat.testing.contents import check_batch_size, check_message
from celery_sqs_heartbeat.testing.message import SimulatedMessage, md5
from celery_sqs_heartbeat.testing.requests import Answer, Request, within


def send_message(sqs: Account, request: Request) -> Answer:
    """Send a message."""
    queue = sqs.queue(request["QueueUrl"])
    now = sqs.clock()
    delay = within(request, "DelaySeconds", 0, 900)
    check_message(request, queue.options.largest_message)
    group = request.get("MessageGroupId")
    deduplication_id = request.get("MessageDeduplicationId")
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
        message_id=str(uuid.UUID(int=sqs.random.getrandbits(128), version=4)),
        body=request["MessageBody"],
        sent_at=now,
        visible_at=now + delay,
        attributes=request.get("MessageAttributes") or {},
        group_id=group,
    )
    sent = queue.send(message, now, deduplication_id)
    answer = {"MessageId": sent.message_id, "MD5OfMessageBody": md5(sent.body)}
    if queue.is_fifo:
        answer["SequenceNumber"] = str(sent.sequence_number)
    return answer


def send_message_batch(sqs: Account, request: Request) -> Answer:
    """Send messages, each independently."""
    check_batch_size(request.get("Entries"))
    return _batch(sqs, "SendMessageBatch", request, send_message)


def receive_message(sqs: Account, request: Request) -> Answer:
    """Receive messages that are visible now."""
    queue = sqs.queue(request["QueueUrl"])
    count = within(request, "MaxNumberOfMessages", 1, 10)
    wait = within(request, "WaitTimeSeconds", 0, 20)
    names, older_names = (
        request.get(name) or () for name in ("MessageSystemAttributeNames", "AttributeNames")
    )
    check_names(names, OF_MESSAGES)
    check_names(older_names, OF_RECEIVES)
    wanted = {*names, *older_names}
    received = queue.receive(
        sqs.clock(),
        count=1 if count is None else count,
        timeout=within(request, "VisibilityTimeout", 0, 43_200),
        is_long_poll=bool(queue.options.wait if wait is None else wait),
    )
    chosen = request.get("MessageAttributeNames") or ()
    messages = [message.as_answer(sqs.epoch, chosen) for message in received]
    for message in messages:
        shown = message.pop("Attributes")
        if not wanted & {"All", "ALL"}:
            shown = {name: value for name, value in shown.items() if name in wanted}
        if shown:
            message["Attributes"] = shown
    return {"Messages": messages} if messages else {}


def change_message_visibility(sqs: Account, request: Request) -> Answer:
    """Set a message's visibility timeout, counted from now."""
    sqs.queue(request["QueueUrl"]).change_visibility(
        request["ReceiptHandle"], int(request["VisibilityTimeout"]), sqs.clock()
    )
    return {}


def change_message_visibility_batch(sqs: Account, request: Request) -> Answer:
    """Set the visibility timeout of messages; 0 if an entry has none."""

    def change(sqs: Account, entry: Request) -> Answer:
        return change_message_visibility(sqs, {"VisibilityTimeout": 0, **entry})

    return _batch(sqs, "ChangeMessageVisibilityBatch", request, change)


def delete_message(sqs: Account, request: Request) -> Answer:
    """Delete a message."""
    sqs.queue(request["QueueUrl"]).delete(request["ReceiptHandle"], sqs.clock())
    return {}


def delete_message_batch(sqs: Account, request: Request) -> Answer:
    """Delete messages, each independently."""
    return _batch(sqs, "DeleteMessageBatch", request, delete_message)


def _batch(
    sqs: Account,
    operation: str,
    request: Request,
    do: Callable[[Account, Request], Answer],
) -> Answer:
    url = request["QueueUrl"]
    sqs.queue(url)
    return answer_batch(
        request.get("Entries"),
        lambda entry: do(sqs, {**entry, "QueueUrl": url}),
        sqs.faults,
        operation,
    )
