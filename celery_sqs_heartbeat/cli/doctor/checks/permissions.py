"""Checks which calls SQS permits on a queue, and whether SQS answers at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.cli.queues.queue_facts import Answer, QueueFacts, Tried

PERMITTED = Kind(
    "SQSHB-P301",
    "permissions are granted",
    "The doctor tried each with a call that changes nothing.",
)
DENIED = Kind(
    "SQSHB-E301",
    "permissions are missing",
    "The worker can't do its work on this queue without them.",
    "Grant them to the worker's role. `celery -A proj sqs-heartbeat iam` prints the policy.",
)
ATTRIBUTES_DENIED = Kind(
    "SQSHB-W302",
    "the queue's attributes can't be read",
    "The worker must guess the visibility timeout, so it extends each message at once. The "
    "doctor could check neither the visibility timeout nor the redrive policy.",
    "Grant sqs:GetQueueAttributes. `celery -A proj sqs-heartbeat iam` prints the policy.",
)
NOT_TRIED = Kind(
    "SQSHB-I303",
    "some permissions can't be tried",
    "Trying sqs:SendMessage would send a message, and trying sqs:CreateQueue would create the "
    "queue. Retries and tasks that call tasks send messages.",
    "Make sure that the worker's role has them.",
)
UNREACHABLE = Kind(
    "SQSHB-E304",
    "SQS can't be reached",
    "A worker on this machine can't receive anything.",
    "Check the region, the endpoint in broker_url, the network and web proxies.",
)
CREDENTIALS = Kind(
    "SQSHB-E305",
    "SQS does not accept the credentials",
    "They are missing, wrong or expired, or this machine's clock is wrong.",
    "Check the clock, and the keys or the role that this process uses.",
)
BUSY = Kind(
    "SQSHB-W306",
    "SQS throttles calls or has an outage",
    "The check is incomplete.",
    "Run the doctor again.",
)
REFUSED = Kind(
    "SQSHB-W307",
    "SQS refused one of the doctor's calls",
    "The reason is not a missing permission. The check is incomplete.",
    "Look up the code in the SQS API reference, under common errors.",
)

INCOMPLETE = Kind(
    "SQSHB-E308",
    "queues could not be checked",
    "SQS did not answer every call about these queues, so they may have faults that are not "
    "listed here.",
    "Fix what keeps SQS from answering, then run the doctor again.",
)

KINDS = (
    PERMITTED,
    DENIED,
    ATTRIBUTES_DENIED,
    NOT_TRIED,
    UNREACHABLE,
    CREDENTIALS,
    BUSY,
    REFUSED,
    INCOMPLETE,
)

_TROUBLE = {
    Tried.UNREACHABLE: UNREACHABLE,
    Tried.CREDENTIALS: CREDENTIALS,
    Tried.BUSY: BUSY,
    Tried.REFUSED: REFUSED,
}


def check_permissions(queue: QueueFacts) -> Iterator[Finding]:
    """Check the answers to the calls that were tried on a queue."""
    permitted = []
    denied = []
    reported = set()
    for action, answer in queue.tries.items():
        if answer.tried is Tried.ALLOWED:
            permitted.append(action)
        elif answer.tried is Tried.DENIED:
            if action == "sqs:GetQueueAttributes":
                yield ATTRIBUTES_DENIED.found(queue=queue.name, value=action)
            else:
                denied.append(action)
        elif answer.tried in _TROUBLE and answer.tried not in reported:
            reported.add(answer.tried)
            yield _trouble(answer, queue.name)
    if denied:
        yield DENIED.found(queue=queue.name, value=", ".join(denied))
    if permitted and queue.found.tried is not Tried.NO_QUEUE:
        yield PERMITTED.found(queue=queue.name, value=", ".join(permitted))


def check_complete(queues: Sequence[QueueFacts]) -> Iterator[Finding]:
    """Report the queues for which SQS gave no answer: no findings about them prove nothing."""
    unchecked = [queue.name for queue in queues if not queue.is_answered]
    if unchecked:
        count = f"{len(unchecked)} of {len(queues)}"
        yield INCOMPLETE.found(value=f"{count} ({', '.join(unchecked)})")


def check_untried(queues: Iterable[QueueFacts]) -> Iterator[Finding]:
    """Name the permissions that can't be tried without an effect."""
    asked = list(queues)
    untried = ["sqs:SendMessage"] if any(queue.attributes for queue in asked) else []
    if any(queue.found.tried is Tried.NO_QUEUE and not queue.is_predefined for queue in asked):
        untried.append("sqs:CreateQueue")
    if untried:
        yield NOT_TRIED.found(value=", ".join(untried))


def _trouble(answer: Answer, queue: str | None) -> Finding:
    return _TROUBLE[answer.tried].found(queue=queue, value=answer.reason)
