"""The doctor's rules about which queues exist, and what SQS permits on them.

Each docstring has the texts that people read.
"""
# ruff: noqa: ARG001, D205, D403 - one table, one signature; texts for people.

from __future__ import annotations

from collections.abc import Sequence

from celery_sqs_heartbeat.cli.app import AppFacts
from celery_sqs_heartbeat.cli.findings import Found, RuleTable, faults, when
from celery_sqs_heartbeat.cli.queues import QueueFacts, Tried
from celery_sqs_heartbeat.common.values import did_you_mean
from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.sqs.names import is_queue_name

#: Rules for one queue, whatever SQS answered. Their facts are the app and the queue.
ASKED = RuleTable()
#: Rules for a queue that only the settings name. Their facts are the queue and the app's names.
NAMED = RuleTable()
#: Rules for all queues together.
TOGETHER = RuleTable()
#: Rules about what is missing before SQS is asked. Who looks for it finds out.
UNASKED = RuleTable()


@UNASKED.rule("SQSHB-E006", "the app has no such queue")
def no_queue() -> list[Found]:
    """A worker that should consume from it exits.

    Fix: Add it to task_queues, or set task_create_missing_queues.
    """
    return []


@UNASKED.rule("SQSHB-E217", "there is no queue to consume from")
def nothing_consumed() -> list[Found]:
    """A worker starts, but receives nothing.

    Fix: Set task_default_queue or task_queues, or name queues with -Q.
    """
    return []


@NAMED.rule("SQSHB-W009", "settings are given for a queue that does not exist")
def unknown_queue(queue: QueueFacts, known: Sequence[str]) -> list[Found]:
    """Neither task_queues, -Q nor SQS has a queue of this name, so these settings have no effect.

    Fix: Correct the name in sqs_heartbeat_queues, or remove it.
    """
    hint = did_you_mean(queue.name, known)
    tried = queue.found.tried
    # If SQS did not say whether the queue exists, only a similar name shows a typing error.
    is_unknown = tried is Tried.NO_QUEUE or (hint != "" and tried is not Tried.ALLOWED)
    return when(is_unknown, PREFIX + "queues", f"{queue.name!r}{hint}")


def _absence(app: AppFacts, queue: QueueFacts) -> str | None:
    """Return the id of the rule about a queue that does not exist; None if it may exist."""
    if queue.found.tried is not Tried.NO_QUEUE:
        return None
    if queue.is_predefined:
        return "SQSHB-E215" if queue.url is None else "SQSHB-E201"
    if queue.sqs_name is not None and not is_queue_name(queue.sqs_name):
        return "SQSHB-E216"
    if not queue.is_known:
        return "SQSHB-E220"
    return "SQSHB-E219" if app.broker.creation_faults else "SQSHB-W202"


def _absent(id_: str, app: AppFacts, queue: QueueFacts) -> list[Found]:
    """Return a finding with SQS's name of the queue, if it differs from Celery's."""
    own_name = None if queue.sqs_name == queue.name else queue.sqs_name
    return when(_absence(app, queue) == id_, value=own_name)


@ASKED.rule("SQSHB-E201", "the queue does not exist")
def missing(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """kombu never creates predefined queues. The worker starts, but each receive from this queue
    fails.

    Fix: Create the queue, or correct its url in predefined_queues.
    """
    return when(_absence(app, queue) == "SQSHB-E201", value=queue.url)


@ASKED.rule("SQSHB-E215", "the queue is not among predefined_queues")
def not_predefined(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """If predefined_queues is set, kombu uses no other queues. The worker exits when it begins to
    consume.

    Fix: Add the queue to predefined_queues with its url, or remove it from -Q and task_queues.
    """
    return _absent("SQSHB-E215", app, queue)


@ASKED.rule("SQSHB-E216", "SQS does not accept the queue's name")
def wrong_name(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """kombu can't create the queue. The worker exits when it begins to consume.

    Fix: Use 1 to 80 letters, digits, hyphens and underscores. The name of a FIFO queue ends in
    .fifo.
    """
    return _absent("SQSHB-E216", app, queue)


@ASKED.rule("SQSHB-W202", "the queue does not exist yet")
def will_be_created(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """kombu creates it without a dead-letter queue and with a visibility timeout of 30 minutes,
    unless the transport option visibility_timeout sets another.

    Fix: Create it yourself, with a visibility timeout of about 30 s and a redrive policy.
    """
    return _absent("SQSHB-W202", app, queue)


@ASKED.rule(
    "SQSHB-E219", "the queue does not exist, and a transport option for new queues is wrong"
)
def cannot_be_created(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """kombu can't create the queue. A worker that consumes from it refuses to start.

    Fix: Create the queue yourself, or correct the option in broker_transport_options.
    """
    is_found = _absence(app, queue) == "SQSHB-E219"
    return faults(["; ".join(app.broker.creation_faults)] if is_found else [])


@ASKED.rule("SQSHB-E220", "the queue that -Q names does not exist")
def unknown_to_the_app(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """The app does not name it, either. A worker creates it, and tasks are probably sent to another
    queue.

    Fix: Correct the name in -Q. Or create the queue, or add it to task_queues.
    """
    return _absent("SQSHB-E220", app, queue)


@ASKED.rule("SQSHB-P301", "permissions are granted")
def permitted(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """The doctor tried each with a call that changes nothing."""
    actions = queue.actions(Tried.ALLOWED)
    return when(actions and queue.found.tried is not Tried.NO_QUEUE, value=", ".join(actions))


@ASKED.rule("SQSHB-E301", "permissions are missing")
def denied(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """The worker can't do its work on this queue without them.

    Fix: Grant them to the worker's role. `celery -A proj sqs-heartbeat iam` prints the policy.
    """
    actions = [each for each in queue.actions(Tried.DENIED) if each != "sqs:GetQueueAttributes"]
    return when(actions, value=", ".join(actions))


@ASKED.rule("SQSHB-W302", "the queue's attributes can't be read")
def attributes_denied(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """The worker must guess the visibility timeout, so it extends each message at once. The doctor
    could check neither the visibility timeout nor the redrive policy.

    Fix: Grant sqs:GetQueueAttributes. `celery -A proj sqs-heartbeat iam` prints the policy.
    """
    action = "sqs:GetQueueAttributes"
    return when(action in queue.actions(Tried.DENIED), value=action)


@ASKED.rule("SQSHB-E304", "SQS can't be reached")
def unreachable(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """A worker on this machine can't receive anything.

    Fix: Check the region, the endpoint in broker_url, the network and web proxies.
    """
    return _trouble(queue, Tried.UNREACHABLE)


@ASKED.rule("SQSHB-E305", "SQS does not accept the credentials")
def credentials(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """They are missing, wrong or expired, or this machine's clock is wrong.

    Fix: Check the clock, and the keys or the role that this process uses.
    """
    return _trouble(queue, Tried.CREDENTIALS)


@ASKED.rule("SQSHB-W306", "SQS throttles calls or has an outage")
def busy(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """The check is incomplete.

    Fix: Run the doctor again.
    """
    return _trouble(queue, Tried.BUSY)


@ASKED.rule("SQSHB-W307", "SQS refused one of the doctor's calls")
def refused(app: AppFacts, queue: QueueFacts) -> list[Found]:
    """The reason is not a missing permission. The check is incomplete.

    Fix: Look up the code in the SQS API reference, under common errors.
    """
    return _trouble(queue, Tried.REFUSED)


def _trouble(queue: QueueFacts, tried: Tried) -> list[Found]:
    """Return a finding for the first of a queue's answers of this kind."""
    reasons = [each.reason for each in queue.tries.values() if each.tried is tried]
    return [Found(value=reason) for reason in reasons[:1]]


@TOGETHER.rule("SQSHB-I303", "some permissions can't be tried")
def not_tried(queues: Sequence[QueueFacts]) -> list[Found]:
    """Trying sqs:SendMessage would send a message, and trying sqs:CreateQueue would create the
    queue. Retries and tasks that call tasks send messages.

    Fix: Make sure that the worker's role has them.
    """
    untried = ["sqs:SendMessage"] if any(queue.attributes for queue in queues) else []
    if any(queue.found.tried is Tried.NO_QUEUE and not queue.is_predefined for queue in queues):
        untried.append("sqs:CreateQueue")
    return when(untried, value=", ".join(untried))


@TOGETHER.rule("SQSHB-E308", "queues could not be checked")
def incomplete(queues: Sequence[QueueFacts]) -> list[Found]:
    """SQS did not answer every call about these queues, so they may have faults that are not listed
    here.

    Fix: Fix what keeps SQS from answering, then run the doctor again.
    """
    unchecked = [queue.name for queue in queues if not queue.is_answered]
    value = f"{len(unchecked)} of {len(queues)} ({', '.join(unchecked)})"
    return when(unchecked, value=value)
