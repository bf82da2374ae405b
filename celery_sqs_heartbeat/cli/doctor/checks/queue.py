"""Checks of one queue's attributes against the settings."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind, of_fault
from celery_sqs_heartbeat.cli.doctor.checks.timing import check_own_timeout
from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts, Tried
from celery_sqs_heartbeat.sqs.adapter import read_attributes
from celery_sqs_heartbeat.sqs.names import is_queue_name

#: Messages in flight of one queue, standard or FIFO (SQS Developer Guide, "Amazon SQS
#: message quotas", and "Avoiding large message backlogs" for FIFO; 20,000 there until 2024).
IN_FLIGHT_QUOTA = 120_000
#: From here on it is time to do something, before SQS gives out nothing more.
IN_FLIGHT_PART = 0.8
#: Fewer receives than this leave no room for a lost worker.
FEW_RECEIVES = 3
#: A message that a dead worker held waits for so long, in seconds: no longer a short time.
LONG_TIMEOUT = 300
#: A weekend's outage takes a day's retention with it, in seconds.
SHORT_RETENTION = 86_400

EXISTS = Kind("SQSHB-P201", "the queue is there", "its attributes could be read")
MISSING = Kind(
    "SQSHB-E201",
    "there is no such queue",
    "predefined queues are never created: the worker starts, and each receive from it fails",
    "create the queue, or correct its url in predefined_queues",
)
NOT_PREDEFINED = Kind(
    "SQSHB-E215",
    "the queue is not among predefined_queues",
    "where there are any, kombu uses no other: the worker exits as it begins to consume",
    "add it to predefined_queues with its url, or remove it from -Q and task_queues",
)
WRONG_NAME = Kind(
    "SQSHB-E216",
    "SQS accepts no queue of that name",
    "kombu can't create it: the worker exits as it begins to consume",
    "use 1 to 80 letters, digits, hyphens and underscores; a FIFO queue's name ends in .fifo",
)
NONE = Kind(
    "SQSHB-E217",
    "there is no queue to consume from",
    "a worker starts, and receives nothing",
    "set task_default_queue or task_queues, or name queues with -Q",
)
WILL_BE_CREATED = Kind(
    "SQSHB-W202",
    "there is no such queue yet",
    "kombu creates it: with a visibility timeout of 30 minutes, unless the transport option "
    "visibility_timeout says another, and with no dead-letter queue",
    "create it yourself, with a visibility timeout of 30 s or so and a redrive policy",
)
DOES_NOT_FIT = Kind(
    "SQSHB-E203",
    "the settings do not fit the queue",
    "the worker refuses to start on it",
    "change the named setting, or the queue's visibility timeout",
)
NO_REDRIVE = Kind(
    "SQSHB-W204",
    "the queue has no redrive policy",
    "a message whose task always fails, or kills its worker, comes back for ever",
    "give it a dead-letter queue: a RedrivePolicy with a maxReceiveCount of 5 or so",
)
FEW_TRIES = Kind(
    "SQSHB-W205",
    "maxReceiveCount is low",
    "every receive counts, also one whose worker was killed, and each 12 hours of a far ETA: "
    "messages go to the dead-letter queue though nothing is wrong with them",
    "raise maxReceiveCount in the RedrivePolicy to 5 or so",
)
LONG = Kind(
    "SQSHB-I206",
    "messages are hidden for long",
    "a message that a killed worker held is not run again before that time is over; "
    "with the heartbeat it need not be longer than a minute",
    "set sqs_heartbeat_visibility_timeout, or the queue's own, to 30 or so",
)
VANISHES = Kind(
    "SQSHB-E207",
    "messages are kept for no longer than one receive may hide them",
    "retention counts from the send: SQS deletes a message before it can be tried again",
    "raise the queue's MessageRetentionPeriod to several days, or lower the visibility timeout",
)
SHORT_LIVED = Kind(
    "SQSHB-W208",
    "messages are kept for a short time only",
    "retention counts from the send and goes on through retries, ETAs and outages: what is "
    "older is deleted without a trace, even while its task runs",
    "raise the queue's MessageRetentionPeriod to several days (1209600 is the most)",
)
FIFO = Kind(
    "SQSHB-I209",
    "the queue is FIFO",
    "while a message is in flight nothing behind it in its group is received, so a long task, "
    "or a release delay, holds up its whole group; an expired lease can't delete its message",
    "give messages that need no order groups of their own",
)
NEARLY_FULL = Kind(
    "SQSHB-W210",
    "many messages are in flight",
    f"SQS gives out no more than {IN_FLIGHT_QUOTA:,} at a time, and says nothing on a long poll",
    "lower worker_prefetch_multiplier, set worker_eta_task_limit, or split the queue",
)
FULL = Kind(
    "SQSHB-E211",
    "as many messages are in flight as SQS allows",
    "workers receive nothing more until some are deleted or released",
    "lower worker_prefetch_multiplier, set worker_eta_task_limit, or split the queue",
)
ENCRYPTED = Kind(
    "SQSHB-I212",
    "the queue is encrypted with a key of KMS",
    "without kms:Decrypt nothing is received, and without kms:GenerateDataKey nothing is sent",
    "permit both on the key: `celery -A proj sqs-heartbeat iam` prints them",
)

KINDS = (
    EXISTS,
    MISSING,
    NOT_PREDEFINED,
    WRONG_NAME,
    NONE,
    WILL_BE_CREATED,
    DOES_NOT_FIT,
    NO_REDRIVE,
    FEW_TRIES,
    LONG,
    VANISHES,
    SHORT_LIVED,
    FIFO,
    NEARLY_FULL,
    FULL,
    ENCRYPTED,
)


def check_queue(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    """Check whether the queue is there, and what it says of itself."""
    if queue.found.tried is Tried.NO_QUEUE:
        yield _missing(queue)
    if not queue.attributes:
        return
    own_timeout = read_attributes(queue.attributes).visibility_timeout
    yield EXISTS.found(queue=queue.name, value=f"visibility timeout {own_timeout} s")
    for fault in app.settings.faults_with(queue.name, own_timeout, app.leases):
        value = fault.removeprefix(f"queue {queue.name!r}: ")
        yield of_fault(DOES_NOT_FIT, value, queue=queue.name)
    yield from check_own_timeout(app, queue.name, own_timeout)
    timeout = app.settings.for_queue(queue.name).terms(own_timeout).visibility_timeout
    if timeout > LONG_TIMEOUT:
        yield LONG.found(queue=queue.name, value=f"{timeout} s")
    if queue.is_fifo:
        yield FIFO.found(queue=queue.name)
    yield from _check_redrive(queue)
    yield from _check_retention(app, queue, timeout)
    yield from _check_in_flight(queue)
    if key := queue.encryption_key:
        yield ENCRYPTED.found(queue=queue.name, value=key)


def _missing(queue: QueueFacts) -> Finding:
    if queue.url is not None and queue.is_predefined:
        return MISSING.found(queue=queue.name, value=queue.url)
    own_name = None if queue.sqs_name == queue.name else queue.sqs_name
    if queue.is_predefined:
        return NOT_PREDEFINED.found(queue=queue.name, value=own_name)
    if queue.sqs_name is not None and not is_queue_name(queue.sqs_name):
        return WRONG_NAME.found(queue=queue.name, value=own_name)
    return WILL_BE_CREATED.found(queue=queue.name, value=own_name)


def _check_redrive(queue: QueueFacts) -> Iterator[Finding]:
    count = read_attributes(queue.attributes).max_receive_count
    if count is None:
        yield NO_REDRIVE.found(queue=queue.name)
    elif count < FEW_RECEIVES:
        yield FEW_TRIES.found(queue=queue.name, value=count)


def _check_retention(app: AppFacts, queue: QueueFacts, timeout: int) -> Iterator[Finding]:
    retention = queue.number("MessageRetentionPeriod")
    if retention is None:
        return
    scopes = (None, *app.settings.tasks)
    held = max(app.settings.for_task(queue.name, task).terms(timeout).max_lease for task in scopes)
    if retention <= timeout:
        yield VANISHES.found(queue=queue.name, value=f"{retention} s, hidden for {timeout} s")
    elif retention <= max(SHORT_RETENTION, held):
        yield SHORT_LIVED.found(queue=queue.name, value=f"{retention} s, held up to {held:g} s")


def _check_in_flight(queue: QueueFacts) -> Iterator[Finding]:
    count = queue.number("ApproximateNumberOfMessagesNotVisible") or 0
    if count >= IN_FLIGHT_QUOTA:
        yield FULL.found(queue=queue.name, value=f"{count:,}")
    elif count >= IN_FLIGHT_QUOTA * IN_FLIGHT_PART:
        yield NEARLY_FULL.found(queue=queue.name, value=f"{count:,}")
