"""The calls about queues."""

from __future__ import annotations

import math
import re

from celery_sqs_heartbeat.testing import errors, queue_errors
from celery_sqs_heartbeat.testing.account import Account
from celery_sqs_heartbeat.testing.attribute_names import OF_QUEUES, check_names
from celery_sqs_heartbeat.testing.attributes import (
    change,
    difference,
    get_attributes,
    read_attributes,
)
from celery_sqs_heartbeat.testing.names import check_name
from celery_sqs_heartbeat.testing.options import QueueOptions
from celery_sqs_heartbeat.testing.requests import Answer, Request, within

#: For how long SQS refuses a queue's name after its deletion, and another purge after a purge, in
#: seconds (SQS API reference, QueueDeletedRecently and PurgeQueueInProgress).
PAUSE_SECONDS = 60.0
#: The most queues that one ListQueues shows (SQS API reference).
LISTED = 1_000


def create_queue(sqs: Account, request: Request) -> Answer:
    """Make a queue, or find the queue of that name if it has these attributes."""
    name, given = request["QueueName"], request.get("Attributes") or {}
    is_fifo = str(given.get("FifoQueue")).lower() == "true"
    check_name(name, is_fifo=is_fifo)
    now = sqs.clock()
    if now < sqs.deleted.get(name, -math.inf) + PAUSE_SECONDS:
        raise queue_errors.deleted_recently()
    values = read_attributes(given, sqs.queues, is_fifo=is_fifo)
    if name not in sqs.queues:
        sqs.new_queue(name, change(QueueOptions(), values))
    elif other := difference(sqs.queues[name].options, values):
        raise queue_errors.other_queue(other)
    return {"QueueUrl": sqs.queues[name].url}


def delete_queue(sqs: Account, request: Request) -> Answer:
    """Delete a queue and its messages."""
    name = sqs.queue(request["QueueUrl"]).name
    del sqs.queues[name]
    sqs.deleted[name] = sqs.clock()
    return {}


def list_queues(sqs: Account, request: Request) -> Answer:
    """Return the URLs of queues, one page of them if the request has a MaxResults."""
    prefix, token = request.get("QueueNamePrefix") or "", request.get("NextToken") or "0"
    # The API reference names no error for an invalid token.
    if not re.fullmatch(r"[0-9]{1,9}", token):
        raise errors.invalid("Invalid NextToken value.")
    names = [name for name in sqs.queues if name.startswith(prefix)]
    limit = within(request, "MaxResults", 1, LISTED)
    begin = int(token)
    end = begin + (limit or LISTED)
    answer: Answer = {}
    if urls := [sqs.queues[name].url for name in names[begin:end]]:
        answer["QueueUrls"] = urls
    if limit and end < len(names):
        answer["NextToken"] = str(end)
    return answer


def get_queue_url(sqs: Account, request: Request) -> Answer:
    """Return the URL of a queue by its name."""
    return {"QueueUrl": sqs.queue(request["QueueName"]).url}


def get_queue_attributes(sqs: Account, request: Request) -> Answer:
    """Return the requested attributes."""
    queue = sqs.queue(request["QueueUrl"])
    wanted = request.get("AttributeNames") or []
    check_names(wanted, OF_QUEUES)
    attributes = get_attributes(queue, sqs.clock())
    for name, at in (
        ("CreatedTimestamp", queue.created_at),
        ("LastModifiedTimestamp", queue.modified_at),
    ):
        attributes[name] = str(int(sqs.epoch + at))
    if "All" not in wanted:
        attributes = {name: attributes[name] for name in wanted if name in attributes}
    return {"Attributes": attributes} if attributes else {}


def set_queue_attributes(sqs: Account, request: Request) -> Answer:
    """Change all given attributes of a queue, or none."""
    queue = sqs.queue(request["QueueUrl"])
    values = read_attributes(request["Attributes"], sqs.queues, is_fifo=queue.is_fifo)
    queue.options = change(queue.options, values)
    queue.modified_at = sqs.clock()
    return {}


def purge_queue(sqs: Account, request: Request) -> Answer:
    """Delete the messages of a queue."""
    queue, now = sqs.queue(request["QueueUrl"]), sqs.clock()
    if now < queue.purged_at + PAUSE_SECONDS:
        raise queue_errors.purge_in_progress(queue.name)
    queue.purge()
    queue.purged_at = now
    return {}
