"""Checks how Celery's retries and a queue's receives combine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.doctor.checks.fifo import FEW_FOR_RETRIES
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding
from celery_sqs_heartbeat.cli.doctor.checks.queue_kinds import RETRIED

#: The most tasks that a finding names. It gives only the count of the rest.
_MOST_NAMED = 5


def check_retries(app: AppFacts, queue: str, max_receive_count: int) -> Iterator[Finding]:
    """Check a queue with a redrive policy for tasks that retry themselves.

    All tasks are checked, because routes may be functions: the doctor can't know which tasks are
    sent to which queue.
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
    """Return the finding's value. It names the first tasks, and counts the rest."""
    more = [f"and {len(said) - _MOST_NAMED} more"] if len(said) > _MOST_NAMED else []
    return "; ".join([f"maxReceiveCount {max_receive_count}", *said[:_MOST_NAMED], *more])


def _runs(task: TaskFacts, app: AppFacts, max_receive_count: int) -> str:
    """Return how often a task may run if its retries are new messages."""
    if task.retries is None:
        return f"{task.name} (max_retries None): retried indefinitely, never a dead letter"
    messages = task.retries + 1
    # Each retry acks the message before it, so only the last message is received again.
    failing = messages if app.acks_on_failure else task.retries + max_receive_count
    end = "deleted" if app.acks_on_failure else "a dead letter"
    return (
        f"{task.name} (max_retries {task.retries}): {end} after {failing} failed runs, "
        f"or up to {messages * max_receive_count} runs if workers are also lost"
    )
