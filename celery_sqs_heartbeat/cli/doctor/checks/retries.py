"""Checks how Celery's retries and the receives of a queue add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.doctor.checks.fifo import FEW_FOR_RETRIES
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding
from celery_sqs_heartbeat.cli.doctor.checks.queue_kinds import RETRIED

#: Tasks that are named; of more, the rest is counted.
_MOST_NAMED = 5


def check_retries(app: AppFacts, queue: str, max_receive_count: int) -> Iterator[Finding]:
    """Check a queue with a redrive policy for tasks that retry themselves.

    Which tasks are sent to which queue is not known: routes may be functions.
    """
    retried = [task for task in app.tasks if task.acks_late and task.retries != 0]
    released = [task for task in retried if app.settings.releases_retries(queue, task.name)]
    cut_short = [
        f"{task.name} (max_retries {task.retries})"
        for task in released
        if task.retries is not None and task.retries + 1 > max_receive_count
    ]
    if cut_short:
        yield FEW_FOR_RETRIES.found(queue=queue, value=_value(max_receive_count, cut_short))
    sent = [_runs(task, app, max_receive_count) for task in retried if task not in released]
    if sent:
        yield RETRIED.found(queue=queue, value=_value(max_receive_count, sent))


def _value(max_receive_count: int, said: Sequence[str]) -> str:
    """Return what is found of tasks; of many the first ones are named."""
    more = [f"and {len(said) - _MOST_NAMED} more"] if len(said) > _MOST_NAMED else []
    return "; ".join([f"maxReceiveCount {max_receive_count}", *said[:_MOST_NAMED], *more])


def _runs(task: TaskFacts, app: AppFacts, max_receive_count: int) -> str:
    """Return how often a task may run whose retries are new messages."""
    if task.retries is None:
        return f"{task.name} (max_retries None): retried without end, never a dead letter"
    messages = task.retries + 1
    # The message of each run that is retried is acked: only the last one is received again.
    failing = messages if app.acks_on_failure else task.retries + max_receive_count
    end = "deleted" if app.acks_on_failure else "a dead letter"
    return (
        f"{task.name} (max_retries {task.retries}): {end} after {failing} runs that fail, "
        f"up to {messages * max_receive_count} runs where workers are lost, too"
    )
