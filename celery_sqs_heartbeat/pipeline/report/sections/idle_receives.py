"""The section of the report on receives in which no task started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.events import (
    ARRIVED_LATE,
    DUE_LATER,
    SENT_AGAIN,
    UNDELIVERABLE,
    UNSETTLED,
    WORKER_DIED,
)
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.figures import number, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing
from celery_sqs_heartbeat.pipeline.report.queries import IN_NO_JOURNAL

#: Why no task started, for people: a release's cause as in the journal, or the attempt's end.
_MEANINGS: Mapping[str, str] = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReceives:
    """The section's content: how many there are in words, and by queue and cause."""

    summary: str
    by_cause: Listing


def unseen_receives(found: Findings) -> int:
    """Return the number of receives that are in no journal."""
    return sum(row["receives"] for row in found.receives if row["why"] == IN_NO_JOURNAL)


def idle_receives(found: Findings) -> IdleReceives | str:
    """Return the receives in which no task started."""
    of_queue = Counter[str]()
    for row in found.receives:
        of_queue[row["queue"]] += row["receives"]
    idle = [row for row in found.receives if row["why"] is not None]
    if not idle:
        return "A task started in every receive." if of_queue else "No message was received."
    total = sum(row["receives"] for row in idle)
    by_cause = listing(
        "Receives without an execution, by queue and cause",
        ("queue", "cause", "meaning", "receives", "share of queue"),
        [
            (
                text(row["queue"]),
                text(row["why"]),
                _MEANINGS.get(row["why"], ""),
                number(row["receives"]),
                f"{row['receives'] / of_queue[row['queue']]:.1%}",
            )
            for row in idle
        ],
        numbers=2,
        kinds={"cause": "strong"},
    )
    return IdleReceives(
        summary=f"No task is known to have started in {number(total)} of "
        f"{count(of_queue.total(), 'receive')}. "
        "Each of them counts toward the queue's maxReceiveCount: a message with too many becomes "
        "a dead letter without having run.",
        by_cause=by_cause,
    )
