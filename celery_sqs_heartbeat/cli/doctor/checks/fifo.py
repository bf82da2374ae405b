"""Checks of a FIFO queue: what stops its message groups, and what breaks or slows their order."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts, Tried
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.sqs.adapter import read_attributes

#: What SQS says of a queue that sets neither (SQS API reference, SetQueueAttributes).
_QUEUE_SCOPE, _QUEUE_LIMIT = "queue", "perQueue"
_GROUP_SCOPE, _GROUP_LIMIT = "messageGroup", "perMessageGroupId"
#: The group of all messages that are sent without one.
KOMBUS_GROUP = "default"

NO_DEAD_LETTERS = Kind(
    "SQSHB-W021",
    "the FIFO queue has no dead-letter queue",
    "a message whose task always fails, or kills its worker, comes back for ever, and its message "
    "group never goes on",
    "give it a FIFO dead-letter queue: a RedrivePolicy with a maxReceiveCount of 5 or so; where no "
    "message may be left out of the order, have an alert on sqs_heartbeat_group_stops_total",
)
NOT_FIFO = Kind(
    "SQSHB-W022",
    "the dead-letter queue of the FIFO queue is not FIFO",
    "SQS moves messages of a FIFO queue to a FIFO queue alone: a message whose task always fails "
    "stops its message group for ever",
    "create a dead-letter queue whose name ends in .fifo, and name it in the RedrivePolicy",
)
NO_SUCH_DEAD_LETTERS = Kind(
    "SQSHB-W023",
    "the dead-letter queue of the FIFO queue does not exist",
    "SQS can't move a message there: one whose task always fails stops its message group for ever",
    "create it as a FIFO queue, or correct the deadLetterTargetArn in the RedrivePolicy",
)
HALF_HIGH = Kind(
    "SQSHB-W024",
    "high throughput is only half set",
    "SQS counts calls by message group only where it looks for duplicates by message group, too",
    'set DeduplicationScope to "messageGroup", or FifoThroughputLimit to "perQueue"',
)
NORMAL_THROUGHPUT = Kind(
    "SQSHB-I025",
    "the FIFO queue takes 300 calls a second of each action",
    "a worker makes a receive and a delete for each message where groups are short, and all "
    "workers and senders share the limit",
    'if that is too little, set DeduplicationScope to "messageGroup" and FifoThroughputLimit to '
    '"perMessageGroupId"',
)
ONE_GROUP = Kind(
    "SQSHB-I026",
    "all messages seem to be in one message group",
    "that is one task at a time over all workers; no MessageGroupId that differs was found in "
    "task_routes, nor code that may set one: what calls of apply_async give can't be seen here",
    'send with a group: apply_async(..., MessageGroupId="A17"); one group for each thing whose '
    "order matters",
)
RETRIES_DEDUPLICATED = Kind(
    "SQSHB-W027",
    "retries are new messages, and the queue has content-based deduplication",
    "SQS drops without an error what it takes for a message of the last 5 minutes, and a retry "
    "that it drops is lost: the message before it is deleted. The id that kombu gives each message "
    "prevents it; nothing does where a MessageDeduplicationId of your own goes with the retry",
    'remove sqs_heartbeat_fifo_retry and sqs_heartbeat_fifo, so that they are "release" and '
    '"strict"; or set ContentBasedDeduplication to false',
)
NOT_DEDUPLICATED = Kind(
    "SQSHB-I028",
    "content-based deduplication has no effect on Celery's messages",
    "kombu gives each message a MessageDeduplicationId of its own, which comes before it; other "
    "senders' messages with the body of one of the last 5 minutes are dropped without an error",
    "give tasks that must not be sent twice a MessageDeduplicationId of their own",
)
SAME_ID = Kind(
    "SQSHB-W029",
    "a route gives all its messages the same deduplication id",
    "SQS keeps the first of them in 5 minutes, and drops the others without an error",
    "remove MessageDeduplicationId from task_routes; give it to apply_async, from what is to be "
    "done once",
)
EARLY_ORDER = Kind(
    "SQSHB-W030",
    "messages of a FIFO queue are deleted before their tasks run",
    "the next of the group goes out with the delete: only the starts are in order, the tasks run "
    "side by side, and one that fails stops nothing",
    "set acks_late=True for all tasks that are sent there",
)
UNRUN_RECEIVES = Kind(
    "SQSHB-W031",
    "messages that wait use up their receives unrun",
    "a receive brings several of a group; those behind one that fails go back with it, and each of "
    "their receives counts: towards maxReceiveCount, so they may become dead letters unrun, and "
    "towards max_retries, where a retry is a release of the message",
    "remove sqs_heartbeat_fifo_batch: it is 1 by default; or raise maxReceiveCount and max_retries "
    "to a multiple of it",
)
FEW_FOR_RETRIES = Kind(
    "SQSHB-W032",
    "messages become dead letters before their retries are used up",
    "on this queue a retry is one more receive of the same message, which ends with the smaller of "
    "max_retries + 1 and maxReceiveCount",
    "raise maxReceiveCount in the RedrivePolicy to max_retries + 1, or lower max_retries",
)
INLINE = Kind(
    "SQSHB-I033",
    "inline acks have no effect on the FIFO queue",
    "the keeper makes the deletes of a queue in strict order: the next message of a group waits "
    "until SQS has confirmed one",
    "set it for other queues alone, in sqs_heartbeat_queues",
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
    INLINE,
)


def check_fifo(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    """Check a FIFO queue whose attributes could be read."""
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
    # The setting is only the default of tasks that say nothing themselves.
    if not app.acks_late and (early or not app.tasks):
        yield EARLY_ORDER.found(queue=queue.name, setting="task_acks_late", value=False)
    elif early:
        yield EARLY_ORDER.found(queue=queue.name, value=", ".join(sorted(early)))
    yield from _check_batch(app, queue)
    if app.settings.for_queue(queue.name).ack == "inline":
        yield INLINE.found(queue=queue.name, setting=PREFIX + "ack", value="inline")


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
