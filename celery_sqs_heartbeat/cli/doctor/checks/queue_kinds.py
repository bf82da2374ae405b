"""The kinds of findings about a queue's attributes."""

from __future__ import annotations

from celery_sqs_heartbeat.cli.doctor.checks.finding import Kind

#: Messages in flight of one queue, standard or FIFO (SQS Developer Guide, "Amazon SQS
#: message quotas", and "Avoiding large message backlogs" for FIFO; 20,000 there until 2024).
IN_FLIGHT_QUOTA = 120_000

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
    "every receive counts, also one whose worker was killed, and each wait at SQS for an ETA: "
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
RETRIED = Kind(
    "SQSHB-I218",
    "tasks retry themselves, and the queue counts receives",
    "a retry is a new message, whose receives are counted from 1: max_retries bounds the retries, "
    "maxReceiveCount the receives of each of them, and only the last one can become a dead letter",
    "use one of the two for a task: retries, or errors that leave the message in the queue, with a "
    "release policy",
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
    RETRIED,
)
