"""Checks how Celery's retries and the receives of a queue add up."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding
from celery_sqs_heartbeat.cli.doctor.checks.queue_kinds import RETRIED

#: Tasks that are named; of more, the rest is counted.
_MOST_NAMED = 5


def check_retries(app: AppFacts, queue: str, max_receive_count: int) -> Iterator[Finding]:
    """Check a queue with a redrive policy for tasks that retry themselves.

    Which tasks are sent to which queue is not known: routes may be functions.
    """
    retried = [task for task in app.tasks if task.acks_late and task.retries != 0]
    if not retried:
        return
    said = [_runs(task, app, max_receive_count) for task in retried[:_MOST_NAMED]]
    if len(retried) > _MOST_NAMED:
        said.append(f"and {len(retried) - _MOST_NAMED} more")
    yield RETRIED.found(
        queue=queue, value=f"maxReceiveCount {max_receive_count}; {'; '.join(said)}"
    )


def _runs(task: TaskFacts, app: AppFacts, max_receive_count: int) -> str:
    """Return how often a task may run."""
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
