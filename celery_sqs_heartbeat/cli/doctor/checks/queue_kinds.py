"""The kinds of findings about a queue's attributes."""

from __future__ import annotations

from celery_sqs_heartbeat.cli.doctor.checks.finding import Kind

#: The most messages in flight of one queue, standard or FIFO (SQS Developer Guide, "Amazon SQS
#: message quotas", and "Avoiding large message backlogs" for FIFO, where it was 20,000 until 2024).
IN_FLIGHT_QUOTA = 120_000

EXISTS = Kind(
    "SQSHB-P201",
    "the queue exists",
    "The doctor read its attributes.",
)
MISSING = Kind(
    "SQSHB-E201",
    "the queue does not exist",
    "kombu never creates predefined queues. The worker starts, but each receive from this "
    "queue fails.",
    "Create the queue, or correct its url in predefined_queues.",
)
NOT_PREDEFINED = Kind(
    "SQSHB-E215",
    "the queue is not among predefined_queues",
    "If predefined_queues is set, kombu uses no other queues. The worker exits when it begins "
    "to consume.",
    "Add the queue to predefined_queues with its url, or remove it from -Q and task_queues.",
)
WRONG_NAME = Kind(
    "SQSHB-E216",
    "SQS does not accept the queue's name",
    "kombu can't create the queue. The worker exits when it begins to consume.",
    "Use 1 to 80 letters, digits, hyphens and underscores. The name of a FIFO queue ends in .fifo.",
)
NONE = Kind(
    "SQSHB-E217",
    "there is no queue to consume from",
    "A worker starts, but receives nothing.",
    "Set task_default_queue or task_queues, or name queues with -Q.",
)
WILL_BE_CREATED = Kind(
    "SQSHB-W202",
    "the queue does not exist yet",
    "kombu creates it without a dead-letter queue and with a visibility timeout of 30 minutes, "
    "unless the transport option visibility_timeout sets another.",
    "Create it yourself, with a visibility timeout of about 30 s and a redrive policy.",
)
CANNOT_BE_CREATED = Kind(
    "SQSHB-E219",
    "the queue does not exist, and a transport option for new queues is wrong",
    "kombu can't create the queue. A worker that consumes from it refuses to start.",
    "Create the queue yourself, or correct the option in broker_transport_options.",
)
UNKNOWN = Kind(
    "SQSHB-E220",
    "the queue that -Q names does not exist",
    "The app does not name it, either. A worker creates it, and tasks are probably sent to another "
    "queue.",
    "Correct the name in -Q. Or create the queue, or add it to task_queues.",
)
DOES_NOT_FIT = Kind(
    "SQSHB-E203",
    "the settings do not fit the queue",
    "A worker that consumes from it refuses to start.",
    "Change the named setting, or the queue's visibility timeout.",
)
NO_REDRIVE = Kind(
    "SQSHB-W204",
    "the queue has no redrive policy",
    "If a task always fails or kills its worker, SQS delivers its message again and again.",
    "Give it a dead-letter queue: a RedrivePolicy with a maxReceiveCount of about 5.",
)
FEW_TRIES = Kind(
    "SQSHB-W205",
    "maxReceiveCount is low",
    "Every receive counts, including those of killed workers and each wait at SQS for an ETA. "
    "Messages may reach the dead-letter queue although nothing is wrong with them.",
    "Raise maxReceiveCount in the RedrivePolicy to about 5.",
)
LONG = Kind(
    "SQSHB-I206",
    "messages are hidden for a long time",
    "If a worker and its keeper die, for example because their machine fails, no one else can "
    "run their messages until this time has passed. With the heartbeat, a minute is enough.",
    "Set sqs_heartbeat_visibility_timeout, or the queue's own visibility timeout, to about 30 s.",
)
VANISHES = Kind(
    "SQSHB-E207",
    "messages expire before they can be delivered again",
    "The retention period counts from the send. If it is not longer than the visibility "
    "timeout, SQS deletes a message before a second receive.",
    "Raise the queue's MessageRetentionPeriod to several days, or lower the visibility timeout.",
)
SHORT_LIVED = Kind(
    "SQSHB-W208",
    "the retention period is short",
    "It counts from the send and continues through releases, ETAs and outages. SQS deletes "
    "older messages without a trace, even while their tasks run.",
    "Raise the queue's MessageRetentionPeriod to several days. The maximum is 1209600 s.",
)
FIFO = Kind(
    "SQSHB-I209",
    "the queue is FIFO",
    "While a message is in flight, SQS delivers nothing behind it in its message group. A long "
    "task or a release delay delays the whole group. Once a lease has expired, SQS refuses to "
    "delete its message.",
    "Give messages that need no order their own message groups.",
)
NEARLY_FULL = Kind(
    "SQSHB-W210",
    "many messages are in flight",
    f"SQS allows at most {IN_FLIGHT_QUOTA:,} at a time. Beyond that a long poll returns "
    "nothing, without an error.",
    "Lower worker_prefetch_multiplier, set worker_eta_task_limit, or split the queue.",
)
FULL = Kind(
    "SQSHB-E211",
    "SQS allows no more messages in flight",
    "Workers receive nothing until messages are deleted or released.",
    "Lower worker_prefetch_multiplier, set worker_eta_task_limit, or split the queue.",
)
ENCRYPTED = Kind(
    "SQSHB-I212",
    "the queue is encrypted with a KMS key",
    "Without kms:Decrypt a worker receives nothing, and without kms:GenerateDataKey it sends "
    "nothing.",
    "Grant both on the key. `celery -A proj sqs-heartbeat iam` prints the policy.",
)
RETRIED = Kind(
    "SQSHB-I218",
    "tasks retry themselves, and the queue counts receives",
    "A retry is a new message, and SQS counts its receives from 1. max_retries limits the "
    "retries, and maxReceiveCount the receives of each message. Only the last message can "
    "become a dead letter.",
    "For each task, use one of the two: retries, or errors that leave the message in the "
    "queue, with a release policy.",
)
FEW_FOR_PREFETCH = Kind(
    "SQSHB-I221",
    "maxReceiveCount does not fit the prefetch",
    "A worker that shuts down releases the messages that wait behind its running tasks, and the "
    "next worker may be shut down, too: each costs a receive. On its last one, a message is run "
    "during the shutdown, or sent again.",
    "Allow one receive for each message that a process prefetches, and another in case a worker "
    "dies: set maxReceiveCount to worker_prefetch_multiplier + 1, or lower the multiplier.",
)

KINDS = (
    EXISTS,
    MISSING,
    NOT_PREDEFINED,
    WRONG_NAME,
    NONE,
    WILL_BE_CREATED,
    CANNOT_BE_CREATED,
    UNKNOWN,
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
    FEW_FOR_PREFETCH,
)
