"""Defines duplicates and their root causes, for the documents and the report.

A duplicate is an execution of a message that began although the one before it had not failed: the
earlier one was still running, had succeeded, or no journal shows how it ended, because its worker
was killed or released the message while the task ran.

`tables.duplicates` finds duplicates, and `tables.cause_rules` has the rules that choose a cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A root cause of duplicates.

    Attributes:
        meaning: What happened, in a few words.
        sign: The journal lines that show it.
        advice: What to do about it.
    """

    meaning: str
    sign: str
    advice: str


#: All causes by name, the most frequent in practice first.
CAUSES: Mapping[str, Cause] = {
    "keeper-starved": Cause(
        meaning="the thread that extends leases was delayed until a lease expired",
        sign="`keeper-late`, or a `lease-extended` that came too late although the call was fast",
        advice="give the worker more CPU, find out what kills the keeper's process, or raise the "
        "threshold",
    ),
    "sqs-slow": Cause(
        meaning="SQS answered an extension too late",
        sign="a call whose `lat_us` is more than a sixth of the visibility timeout",
        advice="raise the visibility timeout; check the network between the worker and SQS",
    ),
    "sqs-errors": Cause(
        meaning="SQS answered extensions with errors: throttled (429, 503), failed or HTTP 500",
        sign="`extension-failed` with `err` `throttled`, `failed` or `unsure`",
        advice="raise the visibility timeout to longer than such an outage; if SQS throttles, ask "
        "AWS for a higher quota or make fewer calls",
    ),
    "not-permitted": Cause(
        meaning="SQS refused extensions: the worker may not extend the queue's messages, or may "
        "not see the queue",
        sign="`permission-denied` with `act` `extend`, or `extension-failed` with `err` `denied` "
        "or `no-queue`",
        advice="grant sqs:ChangeMessageVisibility to the worker: `celery -A proj sqs-heartbeat "
        "iam` prints the policy, and `celery -A proj sqs-heartbeat doctor` checks it",
    ),
    "network": Cause(
        meaning="SQS did not answer extensions: no answer came, or a gateway's 502 or 504",
        sign="`extension-failed` with `err` `unknown`",
        advice="check the network, proxies and VPC endpoints; raise the visibility timeout to "
        "longer than such an outage",
    ),
    "died-after-success": Cause(
        meaning="the worker died between the end of the task and the confirmed delete",
        sign="the end of the task (`ended_us`), no `message-deleted`, and no later line",
        advice="find out what killed the worker; give it longer to stop; make the task idempotent",
    ),
    "delete-refused": Cause(
        meaning="the task succeeded, and SQS refused to delete its message",
        sign="`delete-abandoned`, or a release with the cause `delete refused`",
        advice="grant sqs:DeleteMessage; on a FIFO queue, an expired lease can't delete",
    ),
    "died-while-running": Cause(
        meaning="the worker died while the task ran",
        sign="a `task-started`, then a release by its keeper with the cause `worker died`, or no "
        "end and no later line of the worker",
        advice="look for an out-of-memory kill, a deployment or a lost host; make the task "
        "idempotent, or let it continue where it stopped",
    ),
    "capped": Cause(
        meaning="the task took longer than a lease may last",
        sign="`lease-capped`",
        advice="raise max_lease (SQS allows at most 12 hours), or split the task",
    ),
    "released-while-running": Cause(
        meaning="the worker released the message while its task ran, as in a cold shutdown",
        sign="`message-released` or `message-lapsing` after `task-started`, with a cause such as "
        "`shutdown` or `cancelled`",
        advice="give workers longer to stop, or make the task idempotent",
    ),
    "opted-out": Cause(
        meaning="the task has sqs_heartbeat=False, so its lease is not extended, and it took "
        "longer than the visibility timeout",
        sign="no extension was tried, and `settings` in the `worker-started` of its worker has "
        "`extend=False` for the task",
        advice="remove sqs_heartbeat=False from the task, or give it a queue with a visibility "
        "timeout longer than the task",
    ),
    "lines-lost": Cause(
        meaning="the lines of its worker that would show the cause are lost: those of a killed "
        "keeper's last second, or of a damaged segment",
        sign="no end or no extension of the execution, at a time from which its worker's lines "
        "are missing: numbers, or a segment",
        advice="find out what killed the keeper or damaged the journal; the report's last section "
        "lists what could not be read",
    ),
    "second-delivery": Cause(
        meaning="SQS delivered the message twice on its own, or another client made it visible",
        sign="a receive while the lease of the one before was certain",
        advice="nothing: standard queues deliver at least once; make the task idempotent, or use a "
        "FIFO queue",
    ),
    "unknown": Cause(
        meaning="the journals do not show why",
        sign="none of the above",
        advice="check lost lines and missing journals in the report's last section",
    ),
}
