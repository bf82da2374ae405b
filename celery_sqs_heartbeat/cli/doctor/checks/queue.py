"""Checks one queue's attributes against the settings."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks import queue_kinds
from celery_sqs_heartbeat.cli.doctor.checks.fifo import check_fifo
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, of_fault
from celery_sqs_heartbeat.cli.doctor.checks.retries import check_retries
from celery_sqs_heartbeat.cli.doctor.checks.timing import check_own_timeout
from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts, Tried
from celery_sqs_heartbeat.sqs.adapter import read_attributes
from celery_sqs_heartbeat.sqs.names import is_queue_name

#: From this part of SQS's quota of messages in flight on, the doctor warns.
IN_FLIGHT_PART = 0.8
#: A smaller maxReceiveCount leaves no spare receive for a lost worker.
FEW_RECEIVES = 3
#: A visibility timeout longer than this is long, in seconds: messages of a dead worker wait for it.
LONG_TIMEOUT = 300
#: A retention period up to this is short, in seconds: an outage over a weekend exceeds a day.
SHORT_RETENTION = 86_400


def check_queue(app: AppFacts, queue: QueueFacts, *, is_known: bool = True) -> Iterator[Finding]:
    """Check whether the queue exists, and its attributes.

    Args:
        is_known: Whether the app names the queue, and not only the option -Q.
    """
    if queue.found.tried is Tried.NO_QUEUE:
        yield _missing(app, queue, is_known=is_known)
    if not queue.attributes:
        return
    own_timeout = read_attributes(queue.attributes).visibility_timeout
    yield queue_kinds.EXISTS.found(queue=queue.name, value=f"visibility timeout {own_timeout} s")
    for fault in app.settings.faults_with(queue.name, own_timeout, app.leases):
        value = fault.removeprefix(f"queue {queue.name!r}: ")
        yield of_fault(queue_kinds.DOES_NOT_FIT, value, queue=queue.name)
    yield from check_own_timeout(app, queue.name, own_timeout)
    timeout = app.settings.for_queue(queue.name).terms(own_timeout).visibility_timeout
    if timeout > LONG_TIMEOUT:
        yield queue_kinds.LONG.found(queue=queue.name, value=f"{timeout} s")
    if queue.is_fifo:
        yield queue_kinds.FIFO.found(queue=queue.name)
        yield from check_fifo(app, queue)
    yield from _check_redrive(app, queue)
    yield from _check_retention(app, queue, timeout)
    yield from _check_in_flight(queue)
    if key := queue.encryption_key:
        yield queue_kinds.ENCRYPTED.found(queue=queue.name, value=key)


def _missing(app: AppFacts, queue: QueueFacts, *, is_known: bool) -> Finding:
    if queue.url is not None and queue.is_predefined:
        return queue_kinds.MISSING.found(queue=queue.name, value=queue.url)
    own_name = None if queue.sqs_name == queue.name else queue.sqs_name
    if queue.is_predefined:
        return queue_kinds.NOT_PREDEFINED.found(queue=queue.name, value=own_name)
    if queue.sqs_name is not None and not is_queue_name(queue.sqs_name):
        return queue_kinds.WRONG_NAME.found(queue=queue.name, value=own_name)
    if not is_known:
        return queue_kinds.UNKNOWN.found(queue=queue.name, value=own_name)
    if app.creation_faults:
        return of_fault(
            queue_kinds.CANNOT_BE_CREATED, "; ".join(app.creation_faults), queue=queue.name
        )
    return queue_kinds.WILL_BE_CREATED.found(queue=queue.name, value=own_name)


def _check_redrive(app: AppFacts, queue: QueueFacts) -> Iterator[Finding]:
    count = read_attributes(queue.attributes).max_receive_count
    if count is None:
        # For a FIFO queue, `check_fifo` reports this.
        if not queue.is_fifo:
            yield queue_kinds.NO_REDRIVE.found(queue=queue.name)
        return
    if count < FEW_RECEIVES:
        yield queue_kinds.FEW_TRIES.found(queue=queue.name, value=count)
    if count <= app.prefetch_multiplier:
        value = f"{count}, and worker_prefetch_multiplier is {app.prefetch_multiplier}"
        yield queue_kinds.FEW_FOR_PREFETCH.found(queue=queue.name, value=value)
    yield from check_retries(app, queue.name, count)


def _check_retention(app: AppFacts, queue: QueueFacts, timeout: int) -> Iterator[Finding]:
    retention = queue.number("MessageRetentionPeriod")
    if retention is None:
        return
    scopes = (None, *app.settings.tasks)
    held = max(app.settings.for_task(queue.name, task).terms(timeout).max_lease for task in scopes)
    if retention <= timeout:
        yield queue_kinds.VANISHES.found(
            queue=queue.name,
            value=f"retention period {retention} s, visibility timeout {timeout} s",
        )
    elif retention <= max(SHORT_RETENTION, held):
        yield queue_kinds.SHORT_LIVED.found(
            queue=queue.name, value=f"{retention} s, and messages are held for up to {held:g} s"
        )


def _check_in_flight(queue: QueueFacts) -> Iterator[Finding]:
    count = queue.number("ApproximateNumberOfMessagesNotVisible") or 0
    if count >= queue_kinds.IN_FLIGHT_QUOTA:
        yield queue_kinds.FULL.found(queue=queue.name, value=f"{count:,}")
    elif count >= queue_kinds.IN_FLIGHT_QUOTA * IN_FLIGHT_PART:
        yield queue_kinds.NEARLY_FULL.found(queue=queue.name, value=f"{count:,}")
