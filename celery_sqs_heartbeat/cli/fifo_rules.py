"""The doctor's rules about FIFO queues: what stops groups, breaks order or slows them down."""
# ruff: noqa: ARG001, D403, D415 - a parameter says which queues; docstrings are what people read.

from __future__ import annotations

from celery_sqs_heartbeat.cli.app import AppFacts
from celery_sqs_heartbeat.cli.findings import Found, when
from celery_sqs_heartbeat.cli.queues import QueueFacts, Tried
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.settings import PREFIX

#: SQS's defaults for queues that set neither (SQS API reference, SetQueueAttributes).
_QUEUE_SCOPE, _QUEUE_LIMIT = "queue", "perQueue"
_GROUP_SCOPE, _GROUP_LIMIT = "messageGroup", "perMessageGroupId"
#: kombu's group for messages that are sent without one.
KOMBUS_GROUP = "default"


def w021(fifo: QueueFacts) -> list[Found]:
    """the FIFO queue has no dead-letter queue

    If a task always fails or kills its worker, SQS delivers its message again and again, and the
    message group never continues.

    Fix: Give it a FIFO dead-letter queue: a RedrivePolicy with a maxReceiveCount of about 5. If no
    message may be skipped, set an alert on sqs_heartbeat_group_stops_total instead.
    """
    return when(fifo.max_receive_count is None)


def w022(fifo: QueueFacts) -> list[Found]:
    """the dead-letter queue of the FIFO queue is not FIFO

    SQS moves messages of a FIFO queue only to another FIFO queue. If a task always fails, its
    message stops its message group indefinitely.

    Fix: Create a dead-letter queue whose name ends in .fifo, and name it in the RedrivePolicy.
    """
    name = fifo.dead_letter_name
    is_found = fifo.max_receive_count is not None and name is not None and not is_fifo(name)
    return when(is_found, "RedrivePolicy", name)


def w023(fifo: QueueFacts) -> list[Found]:
    """the dead-letter queue of the FIFO queue does not exist

    SQS can't move messages to it. If a task always fails, its message stops its message group
    indefinitely.

    Fix: Create it as a FIFO queue, or correct the deadLetterTargetArn in the RedrivePolicy.
    """
    name, answer = fifo.dead_letter_name, fifo.dead_letters
    is_missing = answer is not None and answer.tried is Tried.NO_QUEUE
    is_found = is_missing and fifo.max_receive_count is not None and is_fifo(name or "")
    return when(is_found, "RedrivePolicy", name)


def w024(fifo: QueueFacts) -> list[Found]:
    """high throughput is only half enabled

    SQS counts calls per message group only if it also deduplicates per message group.

    Fix: Set DeduplicationScope to "messageGroup", or FifoThroughputLimit to "perQueue".
    """
    limit, scope = _throughput(fifo)
    is_half = limit == _GROUP_LIMIT and scope != _GROUP_SCOPE
    return when(is_half, "DeduplicationScope", f"{scope} (FifoThroughputLimit {limit})")


def i025(fifo: QueueFacts) -> list[Found]:
    """the FIFO queue allows 300 calls per second for each action

    All workers and senders share this limit. If groups are short, a worker makes one receive and
    one delete for each message.

    Fix: If the limit is too low, set DeduplicationScope to "messageGroup" and FifoThroughputLimit
    to "perMessageGroupId".
    """
    limit, _ = _throughput(fifo)
    return when(limit != _GROUP_LIMIT, "FifoThroughputLimit", limit)


def _throughput(queue: QueueFacts) -> tuple[str, str]:
    limit = queue.attributes.get("FifoThroughputLimit", _QUEUE_LIMIT)
    return limit, queue.attributes.get("DeduplicationScope", _QUEUE_SCOPE)


def i026(app: AppFacts, ordered: QueueFacts) -> list[Found]:
    """all messages seem to be in one message group

    Only one task of a group runs at a time, over all workers. The doctor found no other
    MessageGroupId in task_routes, and no code that may set one. It can't see the arguments of
    apply_async calls.

    Fix: Send with a group, such as apply_async(..., MessageGroupId="A17"). Use one group for each
    thing whose order matters.
    """
    groups = app.groups
    is_one = not app.may_name_groups and len(groups) < 2
    return when(is_one, value=next(iter(groups), KOMBUS_GROUP))


def w027(app: AppFacts, fifo: QueueFacts) -> list[Found]:
    """retries are new messages, and the queue has content-based deduplication

    SQS silently drops a duplicate of a message of the last 5 minutes. If it drops a retry, the task
    is lost, because the message before it is deleted. The id that kombu gives each message prevents
    this. A MessageDeduplicationId of your own that is sent again with the retry does not.

    Fix: Remove sqs_heartbeat_fifo_retry and sqs_heartbeat_fifo, which default to "release" and
    "strict". Or set ContentBasedDeduplication to false.
    """
    name = _sent_by(app, fifo)
    value = name and getattr(app.settings.for_queue(fifo.name), name)
    return when(fifo.deduplicates and name, f"{PREFIX}{name}", repr(value))


def i028(app: AppFacts, fifo: QueueFacts) -> list[Found]:
    """content-based deduplication has no effect on Celery's messages

    kombu gives each message its own MessageDeduplicationId, which takes precedence. For other
    senders, SQS silently drops a message with the same body as one of the last 5 minutes.

    Fix: If a task must not be sent twice, send it with your own MessageDeduplicationId.
    """
    is_found = fifo.deduplicates and not _sent_by(app, fifo)
    return when(is_found, "ContentBasedDeduplication", "true")


def _sent_by(app: AppFacts, queue: QueueFacts) -> str | None:
    """Return the setting with which a queue's retries are new messages, or None."""
    if not app.settings.keeps_order(queue.name):
        return "fifo"
    return "fifo_retry" if app.settings.for_queue(queue.name).fifo_retry == "send" else None


def w029(app: AppFacts, fifo: QueueFacts) -> list[Found]:
    """a route gives all its messages the same deduplication id

    SQS keeps only the first of these messages in 5 minutes and silently drops the others.

    Fix: Remove MessageDeduplicationId from task_routes. Pass it to apply_async instead, with a
    value that identifies the work to do once.
    """
    routes = app.deduplicated_routes
    return when(routes, "task_routes", ", ".join(routes))


def w030(app: AppFacts, ordered: QueueFacts) -> list[Found]:
    """messages of a FIFO queue are deleted before their tasks run

    SQS delivers the next message of a group as soon as one is deleted. Tasks start in order but run
    side by side, and a failed task does not stop its group.

    Fix: Set acks_late=True for all tasks that are sent to this queue.
    """
    # The setting is only the default for tasks that do not set acks_late themselves.
    if not app.acks_late and (app.early_tasks or not app.tasks):
        return [Found("task_acks_late", False)]
    return when(app.early_tasks, value=", ".join(app.early_tasks))


def w031(app: AppFacts, ordered: QueueFacts) -> list[Found]:
    """messages use up receives while they wait

    One receive returns several messages of a group. If one fails, those behind it are released with
    it, and each of their receives counts. They count toward maxReceiveCount, so messages may become
    dead letters without a run. If a retry is a release, they also count toward max_retries.

    Fix: Remove sqs_heartbeat_fifo_batch, which defaults to 1. Or raise maxReceiveCount and
    max_retries to a multiple of it.
    """
    batch, count = app.settings.for_queue(ordered.name).fifo_batch or 1, ordered.max_receive_count
    scopes = (None, *app.settings.tasks)
    counts_retries = any(app.settings.releases_retries(ordered.name, task) for task in scopes)
    most = "no maxReceiveCount" if count is None else f"maxReceiveCount {count}"
    is_found = batch > 1 and (count is not None or counts_retries)
    return when(is_found, PREFIX + "fifo_batch", f"{batch} ({most})")
