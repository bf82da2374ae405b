"""What the sections of the report explain."""

from __future__ import annotations

from collections.abc import Mapping

from celery_sqs_heartbeat.leases.events import (
    ARRIVED_LATE,
    DUE_LATER,
    SENT_AGAIN,
    UNDELIVERABLE,
    UNSETTLED,
    WORKER_DIED,
)
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from celery_sqs_heartbeat.pipeline.report.queries import IN_NO_JOURNAL

#: How an attempt ended, for people.
ENDS = {
    "deleted": "done, and its message deleted",
    "released": "made visible again",
    "parked": "left to SQS until its task was due",
    "lapsed": "left until its visibility timeout ended",
    "lost": "lost: SQS reported that the message was no longer ours",
    "capped": "held for the longest time allowed, then no longer extended",
    "continued": "received again by the same worker, which continued with it",
    "abandoned": "without an end in the journal: its worker died",
    "running": "its task still ran at the end of the journal",
    "waiting": "received, and its task had not started at the end of the journal",
}


#: Shown instead of duplicates if no worker records starts, as a consumer without Celery may not.
NO_STARTS = "The journal records no start of a task, so nothing is known about duplicates."
#: Why no task started, for people: a release's cause as in the journal, or the attempt's end.
MEANINGS: Mapping[str, str] = {
    IN_NO_JOURNAL: "SQS counted a receive that no journal has. The message went into a poll that "
    "was open when its worker died, or to a worker without a journal, or the lines are lost. "
    "Whether a task ran is not known",
    WORKER_DIED: "its worker died before the task started, and its keeper released the message",
    "abandoned": "its worker and its keeper died before the task started",
    "shutdown": "its worker was stopped before the task started",
    "consumer closed": "its worker lost its connection before the task started",
    "not delivered": "its worker was stopped or lost its connection while it received the message",
    "cancelled": "it was cancelled before it started",
    "failed": "Celery rejected the message before a task started",
    GROUP_STOPPED: "a message ahead of it in its group failed",
    NO_ROOM: "too many messages already waited behind others of their group",
    WAITED_LONG: "the message ahead of it in its group took too long",
    DUE_LATER: "its task is due later, so it was left to SQS until then",
    SENT_AGAIN: "it was received for the last time and could not start, so a copy was sent",
    ARRIVED_LATE: "too little of its lease was left when it arrived",
    UNDELIVERABLE: "Celery could not make a task of it",
    UNSETTLED: "nothing would have acked or rejected it",
    "finished": "its task had already ended, and only the delete was missing",
    "redelivered": "its task still ran in the same worker, which continued with it",
    "continued": "the same worker received it again before the task started",
    "lost": "SQS reported that it was no longer ours before the task started",
    "capped": "it waited for the longest time that a lease may last",
    "deleted": "acked without a start: revoked, expired, or by a consumer that records no starts",
}

ABOUT_RECOVERIES = (
    "The time from an attempt's end to its message's next receive, compared with what the "
    "settings promise: the release delay, or the time that was left of the lease. A killed "
    "worker's attempt ends when its keeper releases the message, or, if the keeper was killed, "
    "too, with its last event, which is earlier than the kill. A full queue adds the wait in it. "
    "If no worker runs, the time until the next one does is added. An excess below zero means "
    "that another worker received the message before this one knew that it was lost. Messages "
    "that waited behind another one of their group are left out. A dead letter was received as "
    "often as its queue allows, so SQS moves it to the dead-letter queue."
)
ABOUT_GROUPS = (
    "A message of a FIFO queue that fails, or whose worker dies, stops its group: SQS delivers no "
    "message behind it until it is deleted or moved to the dead-letter queue. A stop lasts from "
    'the first failure to the confirmed delete, or else to the next message of the group. "and '
    'more" means that neither came before the journal\'s end. "waited" counts messages that a '
    "worker also received, and released. Messages that were sent meanwhile waited in the queue, "
    "and no journal shows them."
)
ABOUT_DURATIONS = (
    "How long tasks ran, on a logarithmic scale. The dashed line is the visibility timeout at the "
    "receive of their messages: runs to the right of it needed extensions. The tasks that took "
    "the most time are shown. With a p90 of 2 s, 90% took 2 s or less. Durations are counted in "
    "bins that are 2% wide, and the page shows a bin's upper edge."
)
ABOUT_IN_FLIGHT = (
    "Messages received and not yet ended. SQS allows 120,000 for each queue. A slot runs one "
    "task. The slots of a day are the most that the queue's workers had at any one time. If there "
    "are more messages than slots, workers hold messages that wait."
)
ABOUT_ADVICE = (
    "From the measured times. Each dot is a visibility timeout with a threshold. Those further "
    "left make fewer calls, and those further down recover faster after a crash. An attempt is one "
    "receive of a message by a worker. A message that is received again is one more attempt. "
    "celery -A proj sqs-heartbeat tune prints settings to paste."
)
