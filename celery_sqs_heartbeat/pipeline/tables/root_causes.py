"""What a duplicate is, and the root causes of duplicates: for documents and for the report.

`tables.duplicates` finds them, and `tables.cause_rules` has the rules that choose a cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The one definition; documents and the report quote it.
DUPLICATE = (
    "an execution of a message that began although the one before it had not failed: that one was "
    "still running, had succeeded, or no journal says how it ended, because its worker was killed, "
    "gave the message back while the task ran, or wrote no journal"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A root cause of duplicates.

    Attributes:
        meaning: What happened, in a few words.
        sign: What in the journal shows it.
        advice: What to do about it.
    """

    meaning: str
    sign: str
    advice: str


#: All causes by their names, the most frequent in practice first.
CAUSES: Mapping[str, Cause] = {
    "keeper-starved": Cause(
        meaning="the thread that extends leases was held up until one ran out",
        sign="`keeper-late`, or a `lease-extended` that came too late by a quick call",
        advice="give the worker more CPU, look for what kills the keeper's process, or raise the "
        "threshold",
    ),
    "sqs-slow": Cause(
        meaning="SQS answered an extension too late",
        sign="a call whose `lat_us` is more than a sixth of the visibility timeout",
        advice="raise the visibility timeout; look at the network between the worker and SQS",
    ),
    "sqs-errors": Cause(
        meaning="SQS answered extensions with errors: throttled (429, 503), failed or HTTP 500",
        sign="`extension-failed` with `err` `throttled`, `failed` or `unsure`",
        advice="raise the visibility timeout to longer than such an outage; of throttling, ask AWS "
        "for a higher quota or make fewer calls",
    ),
    "not-permitted": Cause(
        meaning="SQS refused extensions: the worker may not extend the queue's messages, or the "
        "queue is not shown to it",
        sign="`permission-denied` with `act` `extend`, or `extension-failed` with `err` `denied` "
        "or `no-queue`",
        advice="permit sqs:ChangeMessageVisibility to the worker: `celery sqs-heartbeat iam` "
        "prints the policy, and `celery sqs-heartbeat doctor` tries it",
    ),
    "network": Cause(
        meaning="SQS did not answer extensions: no answer came, or a gateway's 502 or 504",
        sign="`extension-failed` with `err` `unknown`",
        advice="look at the network, proxies and VPC endpoints; raise the visibility timeout to "
        "longer than such an outage",
    ),
    "died-after-success": Cause(
        meaning="the worker died between the end of the task and the confirmed delete",
        sign="the end of the task (`ended_us`), no `message-deleted`, and no later line",
        advice="find out what killed the worker; give it longer to stop; make the task idempotent",
    ),
    "delete-refused": Cause(
        meaning="the task succeeded, and SQS refused the delete of its message",
        sign="`delete-abandoned`, or a release with the cause `delete refused`",
        advice="permit sqs:DeleteMessage; on a FIFO queue, a lease that has expired can't delete",
    ),
    "died-while-running": Cause(
        meaning="the worker died in the middle of the task",
        sign="a `task-started`, no end, and no later line of the worker",
        advice="look for a kill for memory, a deployment or a lost host; make the task idempotent, "
        "or let it go on from where it was",
    ),
    "capped": Cause(
        meaning="the task took longer than its message may be kept",
        sign="`lease-capped`",
        advice="raise max_lease (12 hours are the most that SQS allows), or split the task",
    ),
    "released-while-running": Cause(
        meaning="the worker gave the message back while its task ran, as at a cold shutdown",
        sign="`message-released` or `message-lapsing` with another cause than `failed` or `kept`, "
        "after `task-started`",
        advice="give workers longer to stop, or make the task idempotent",
    ),
    "opted-out": Cause(
        meaning="the task is not extended, as it is set sqs_heartbeat=False, and took longer than "
        "the visibility timeout",
        sign="no extension was tried, and `settings` in the `worker-started` of its worker say "
        "`extend=False` of the task",
        advice="take sqs_heartbeat=False from the task, or give it a queue with a visibility "
        "timeout that is longer than it takes",
    ),
    "no-heartbeat": Cause(
        meaning="a receive before it was by a worker without a heartbeat or without a journal",
        sign="the receive count goes up by more than one between two journalled receives",
        advice="start all workers of the queue with --heartbeat-sqs, and have them journal",
    ),
    "lines-lost": Cause(
        meaning="the lines that would tell why are lost: those of a killed worker's last second, "
        "or of a damaged segment",
        sign="the receive count goes up by more than one, or an execution has no end, at a time "
        "from which lines of a worker are missing: numbers, a segment, or its end without "
        "`worker-stopped`",
        advice="look for what killed the worker or damaged the journal; the report's last section "
        "lists what could not be read",
    ),
    "second-delivery": Cause(
        meaning="SQS delivered the message twice by itself, or another client made it visible",
        sign="a receive while the lease of the one before was certain",
        advice="nothing: standard queues deliver at least once; make the task idempotent, or use a "
        "FIFO queue",
    ),
    "unknown": Cause(
        meaning="the journals do not show why",
        sign="none of the above",
        advice="look at lost lines and missing journals in the report's last section",
    ),
}
