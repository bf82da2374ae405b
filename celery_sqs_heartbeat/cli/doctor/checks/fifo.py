"""Checks a FIFO queue for what stops its message groups, breaks their order or slows them down."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts, Tried
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.sqs.adapter import read_attributes

#: SQS's defaults for queues that set neither (SQS API reference, SetQueueAttributes).
_QUEUE_SCOPE, _QUEUE_LIMIT = "queue", "perQueue"
_GROUP_SCOPE, _GROUP_LIMIT = "messageGroup", "perMessageGroupId"
#: kombu's group for messages that are sent without one.
KOMBUS_GROUP = "default"

NO_DEAD_LETTERS = Kind(
    "SQSHB-W021",
    "the FIFO queue has no dead-letter queue",
    "If a task always fails or kills its worker, SQS delivers its message again and again, and "
    "the message group never continues.",
    "Give it a FIFO dead-letter queue: a RedrivePolicy with a maxReceiveCount of about 5. If "
    "no message may be skipped, set an alert on sqs_heartbeat_group_stops_total instead.",
)
NOT_FIFO = Kind(
    "SQSHB-W022",
    "the dead-letter queue of the FIFO queue is not FIFO",
    "SQS moves messages of a FIFO queue only to another FIFO queue. If a task always fails, "
    "its message stops its message group indefinitely.",
    "Create a dead-letter queue whose name ends in .fifo, and name it in the RedrivePolicy.",
)
NO_SUCH_DEAD_LETTERS = Kind(
    "SQSHB-W023",
    "the dead-letter queue of the FIFO queue does not exist",
    "SQS can't move messages to it. If a task always fails, its message stops its message "
    "group indefinitely.",
    "Create it as a FIFO queue, or correct the deadLetterTargetArn in the RedrivePolicy.",
)
HALF_HIGH = Kind(
    "SQSHB-W024",
    "high throughput is only half enabled",
    "SQS counts calls per message group only if it also deduplicates per message group.",
    'Set DeduplicationScope to "messageGroup", or FifoThroughputLimit to "perQueue".',
)
NORMAL_THROUGHPUT = Kind(
    "SQSHB-I025",
    "the FIFO queue allows 300 calls per second for each action",
    "All workers and senders share this limit. If groups are short, a worker makes one receive "
    "and one delete for each message.",
    'If the limit is too low, set DeduplicationScope to "messageGroup" and FifoThroughputLimit '
    'to "perMessageGroupId".',
)
ONE_GROUP = Kind(
    "SQSHB-I026",
    "all messages seem to be in one message group",
    "Only one task of a group runs at a time, over all workers. The doctor found no other "
    "MessageGroupId in task_routes, and no code that may set one. It can't see the arguments "
    "of apply_async calls.",
    'Send with a group, such as apply_async(..., MessageGroupId="A17"). Use one group for each '
    "thing whose order matters.",
)
RETRIES_DEDUPLICATED = Kind(
    "SQSHB-W027",
    "retries are new messages, and the queue has content-based deduplication",
    "SQS silently drops a duplicate of a message of the last 5 minutes. If it drops a retry, "
    "the task is lost, because the message before it is deleted. The id that kombu gives each "
    "message prevents this. A MessageDeduplicationId of your own that is sent again with the "
    "retry does not.",
    'Remove sqs_heartbeat_fifo_retry and sqs_heartbeat_fifo, which default to "release" and '
    '"strict". Or set ContentBasedDeduplication to false.',
)
NOT_DEDUPLICATED = Kind(
    "SQSHB-I028",
    "content-based deduplication has no effect on Celery's messages",
    "kombu gives each message its own MessageDeduplicationId, which takes precedence. For "
    "other senders, SQS silently drops a message with the same body as one of the last 5 "
    "minutes.",
    "If a task must not be sent twice, send it with your own MessageDeduplicationId.",
)
SAME_ID = Kind(
    "SQSHB-W029",
    "a route gives all its messages the same deduplication id",
    "SQS keeps only the first of these messages in 5 minutes and silently drops the others.",
    "Remove MessageDeduplicationId from task_routes. Pass it to apply_async instead, with a "
    "value that identifies the work to do once.",
)
EARLY_ORDER = Kind(
    "SQSHB-W030",
    "messages of a FIFO queue are deleted before their tasks run",
    "SQS delivers the next message of a group as soon as one is deleted. Tasks start in order "
    "but run side by side, and a failed task does not stop its group.",
    "Set acks_late=True for all tasks that are sent to this queue.",
)
UNRUN_RECEIVES = Kind(
    "SQSHB-W031",
    "messages use up receives while they wait",
    "One receive returns several messages of a group. If one fails, those behind it are "
    "released with it, and each of their receives counts. They count toward maxReceiveCount, "
    "so messages may become dead letters without a run. If a retry is a release, they also "
    "count toward max_retries.",
    "Remove sqs_heartbeat_fifo_batch, which defaults to 1. Or raise maxReceiveCount and "
    "max_retries to a multiple of it.",
)
FEW_FOR_RETRIES = Kind(
    "SQSHB-W032",
    "messages become dead letters before their retries are used up",
    "On this queue a retry is another receive of the same message. It gets at most max_retries "
    "+ 1 or maxReceiveCount receives, the smaller of the two.",
    "Raise maxReceiveCount in the RedrivePolicy to max_retries + 1, or lower max_retries.",
)

KINDS = (
    NO_DEAD_LETTERS,
    NOT_FIFO,
    NO_SUCH_DEAD_LETTERS,
    HALF_HIGH,
    NORMAL_THROUGHPUT,
    ONE_GROUP,
    RETRIES_DEDUPLICATED,
    NOT_DEDUPLICATED,
    SAME_ID,
    EARLY_ORDER,
    UNRUN_RECEIVES,
    FEW_FOR_RETRIES,
)


def check_fifo(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    """Check a FIFO queue whose attributes are known."""
    yield from _check_dead_letters(queue)
    yield from _check_throughput(queue)
    yield from _check_duplicates(app, queue)
    if app.settings.keeps_order(queue.name):
        yield from _check_order(app, queue)


def _check_dead_letters(queue: QueueFacts) -> Iterator[Finding]:
    if read_attributes(queue.attributes).max_receive_count is None:
        yield NO_DEAD_LETTERS.found(queue=queue.name)
        return
    name = queue.dead_letter_name
    if name is not None and not is_fifo(name):
        yield NOT_FIFO.found(queue=queue.name, setting="RedrivePolicy", value=name)
    elif queue.dead_letters is not None and queue.dead_letters.tried is Tried.NO_QUEUE:
        yield NO_SUCH_DEAD_LETTERS.found(queue=queue.name, setting="RedrivePolicy", value=name)


def _check_throughput(queue: QueueFacts) -> Iterator[Finding]:
    scope = queue.attributes.get("DeduplicationScope", _QUEUE_SCOPE)
    limit = queue.attributes.get("FifoThroughputLimit", _QUEUE_LIMIT)
    if limit != _GROUP_LIMIT:
        yield NORMAL_THROUGHPUT.found(queue=queue.name, setting="FifoThroughputLimit", value=limit)
    elif scope != _GROUP_SCOPE:
        yield HALF_HIGH.found(
            queue=queue.name,
            setting="DeduplicationScope",
            value=f"{scope} (FifoThroughputLimit {limit})",
        )


def _check_duplicates(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    if routes := app.sending.deduplicated_routes:
        yield SAME_ID.found(queue=queue.name, setting="task_routes", value=", ".join(routes))
    if queue.attributes.get("ContentBasedDeduplication", "").lower() != "true":
        return
    rules = app.settings.for_queue(queue.name)
    if not app.settings.keeps_order(queue.name):
        yield RETRIES_DEDUPLICATED.found(
            queue=queue.name, setting=PREFIX + "fifo", value=repr(rules.fifo)
        )
    elif rules.fifo_retry == "send":
        yield RETRIES_DEDUPLICATED.found(
            queue=queue.name, setting=PREFIX + "fifo_retry", value=repr(rules.fifo_retry)
        )
    else:
        yield NOT_DEDUPLICATED.found(
            queue=queue.name, setting="ContentBasedDeduplication", value="true"
        )


def _check_order(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    if not app.sending.may_name_groups and len(app.sending.groups) < 2:
        yield ONE_GROUP.found(queue=queue.name, value=next(iter(app.sending.groups), KOMBUS_GROUP))
    early = [task.name for task in app.tasks if not task.acks_late]
    # The setting is only the default for tasks that do not set acks_late themselves.
    if not app.acks_late and (early or not app.tasks):
        yield EARLY_ORDER.found(queue=queue.name, setting="task_acks_late", value=False)
    elif early:
        yield EARLY_ORDER.found(queue=queue.name, value=", ".join(sorted(early)))
    yield from _check_batch(app, queue)


def _check_batch(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    batch = app.settings.for_queue(queue.name).fifo_batch or 1
    count = read_attributes(queue.attributes).max_receive_count
    scopes = (None, *app.settings.tasks)
    counts_retries = any(app.settings.releases_retries(queue.name, task) for task in scopes)
    if batch > 1 and (count is not None or counts_retries):
        most = "no maxReceiveCount" if count is None else f"maxReceiveCount {count}"
        yield UNRUN_RECEIVES.found(
            queue=queue.name, setting=PREFIX + "fifo_batch", value=f"{batch} ({most})"
        )
