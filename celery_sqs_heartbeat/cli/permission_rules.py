"""The doctor's rules about which queues exist, and what SQS permits on them."""
# ruff: noqa: D403, D415 - docstrings are what people read.

from __future__ import annotations

from collections.abc import Sequence

from celery_sqs_heartbeat.cli.app import AppFacts
from celery_sqs_heartbeat.cli.findings import Found, faults, when
from celery_sqs_heartbeat.cli.queues import QueueFacts, Tried
from celery_sqs_heartbeat.common.values import did_you_mean
from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.sqs.names import is_queue_name


def e006() -> None:
    """the app has no such queue

    A worker that should consume from it exits.

    Fix: Add it to task_queues, or set task_create_missing_queues.
    """


def e217() -> None:
    """there is no queue to consume from

    A worker starts, but receives nothing.

    Fix: Set task_default_queue or task_queues, or name queues with -Q.
    """


def w009(named: QueueFacts, known: Sequence[str]) -> list[Found]:
    """settings are given for a queue that does not exist

    Neither task_queues, -Q nor SQS has a queue of this name, so these settings have no effect.

    Fix: Correct the name in sqs_heartbeat_queues, or remove it.
    """
    hint = did_you_mean(named.name, known)
    tried = named.found.tried
    # If SQS did not say whether the queue exists, only a similar name shows a typing error.
    is_unknown = tried is Tried.NO_QUEUE or (hint != "" and tried is not Tried.ALLOWED)
    return when(is_unknown, PREFIX + "queues", f"{named.name!r}{hint}")


def _absence(app: AppFacts, queue: QueueFacts) -> str | None:
    """Return the number of the rule about a queue that does not exist; None if it may exist."""
    if queue.found.tried is not Tried.NO_QUEUE:
        return None
    if queue.is_predefined:
        return "E215" if queue.url is None else "E201"
    if queue.sqs_name is not None and not is_queue_name(queue.sqs_name):
        return "E216"
    if not queue.is_known:
        return "E220"
    return "E219" if app.broker.creation_faults else "W202"


def _absent(id_: str, app: AppFacts, queue: QueueFacts) -> list[Found]:
    """Return a finding with SQS's name of the queue, if it differs from Celery's."""
    own_name = None if queue.sqs_name == queue.name else queue.sqs_name
    return when(_absence(app, queue) == id_, value=own_name)


def e201(app: AppFacts, asked: QueueFacts) -> list[Found]:
    """the queue does not exist

    kombu never creates predefined queues. The worker starts, but each receive from this queue
    fails.

    Fix: Create the queue, or correct its url in predefined_queues.
    """
    return when(_absence(app, asked) == "E201", value=asked.url)


def e215(app: AppFacts, asked: QueueFacts) -> list[Found]:
    """the queue is not among predefined_queues

    If predefined_queues is set, kombu uses no other queues. The worker exits when it begins to
    consume.

    Fix: Add the queue to predefined_queues with its url, or remove it from -Q and task_queues.
    """
    return _absent("E215", app, asked)


def e216(app: AppFacts, asked: QueueFacts) -> list[Found]:
    """SQS does not accept the queue's name

    kombu can't create the queue. The worker exits when it begins to consume.

    Fix: Use 1 to 80 letters, digits, hyphens and underscores. The name of a FIFO queue ends in
    .fifo.
    """
    return _absent("E216", app, asked)


def w202(app: AppFacts, asked: QueueFacts) -> list[Found]:
    """the queue does not exist yet

    kombu creates it without a dead-letter queue and with a visibility timeout of 30 minutes, unless
    the transport option visibility_timeout sets another.

    Fix: Create it yourself, with a visibility timeout of about 30 s and a redrive policy.
    """
    return _absent("W202", app, asked)


def e219(app: AppFacts, asked: QueueFacts) -> list[Found]:
    """the queue does not exist, and a transport option for new queues is wrong

    kombu can't create the queue. A worker that consumes from it refuses to start.

    Fix: Create the queue yourself, or correct the option in broker_transport_options.
    """
    is_found = _absence(app, asked) == "E219"
    return faults(["; ".join(app.broker.creation_faults)] if is_found else [])


def e220(app: AppFacts, asked: QueueFacts) -> list[Found]:
    """the queue that -Q names does not exist

    The app does not name it, either. A worker creates it, and tasks are probably sent to another
    queue.

    Fix: Correct the name in -Q. Or create the queue, or add it to task_queues.
    """
    return _absent("E220", app, asked)


def p301(asked: QueueFacts) -> list[Found]:
    """permissions are granted

    The doctor tried each with a call that changes nothing.
    """
    actions = asked.actions(Tried.ALLOWED)
    return when(actions and asked.found.tried is not Tried.NO_QUEUE, value=", ".join(actions))


def e301(asked: QueueFacts) -> list[Found]:
    """permissions are missing

    The worker can't do its work on this queue without them.

    Fix: Grant them to the worker's role. `celery -A proj sqs-heartbeat iam` prints the policy.
    """
    actions = [each for each in asked.actions(Tried.DENIED) if each != "sqs:GetQueueAttributes"]
    return when(actions, value=", ".join(actions))


def w302(asked: QueueFacts) -> list[Found]:
    """the queue's attributes can't be read

    The worker must guess the visibility timeout, so it extends each message at once. The doctor
    could check neither the visibility timeout nor the redrive policy.

    Fix: Grant sqs:GetQueueAttributes. `celery -A proj sqs-heartbeat iam` prints the policy.
    """
    action = "sqs:GetQueueAttributes"
    return when(action in asked.actions(Tried.DENIED), value=action)


def e304(asked: QueueFacts) -> list[Found]:
    """SQS can't be reached

    A worker on this machine can't receive anything.

    Fix: Check the region, the endpoint in broker_url, the network and web proxies.
    """
    return _trouble(asked, Tried.UNREACHABLE)


def e305(asked: QueueFacts) -> list[Found]:
    """SQS does not accept the credentials

    They are missing, wrong or expired, or this machine's clock is wrong.

    Fix: Check the clock, and the keys or the role that this process uses.
    """
    return _trouble(asked, Tried.CREDENTIALS)


def w306(asked: QueueFacts) -> list[Found]:
    """SQS throttles calls or has an outage

    The check is incomplete.

    Fix: Run the doctor again.
    """
    return _trouble(asked, Tried.BUSY)


def w307(asked: QueueFacts) -> list[Found]:
    """SQS refused one of the doctor's calls

    The reason is not a missing permission. The check is incomplete.

    Fix: Look up the code in the SQS API reference, under common errors.
    """
    return _trouble(asked, Tried.REFUSED)


def _trouble(queue: QueueFacts, tried: Tried) -> list[Found]:
    """Return a finding for the first of a queue's answers of this kind."""
    reasons = [each.reason for each in queue.tries.values() if each.tried is tried]
    return [Found(value=reason) for reason in reasons[:1]]


def i303(queues: Sequence[QueueFacts]) -> list[Found]:
    """some permissions can't be tried

    Trying sqs:SendMessage would send a message, and trying sqs:CreateQueue would create the queue.
    Retries and tasks that call tasks send messages.

    Fix: Make sure that the worker's role has them.
    """
    untried = ["sqs:SendMessage"] if any(queue.attributes for queue in queues) else []
    if any(queue.found.tried is Tried.NO_QUEUE and not queue.is_predefined for queue in queues):
        untried.append("sqs:CreateQueue")
    return when(untried, value=", ".join(untried))


def e308(queues: Sequence[QueueFacts]) -> list[Found]:
    """queues could not be checked

    SQS did not answer every call about these queues, so they may have faults that are not listed
    here.

    Fix: Fix what keeps SQS from answering, then run the doctor again.
    """
    unchecked = [queue.name for queue in queues if not queue.is_answered]
    value = f"{len(unchecked)} of {len(queues)} ({', '.join(unchecked)})"
    return when(unchecked, value=value)
