"""Checks what a worker needs besides its settings: tasks, queue names, libraries, a pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts, Tried
from celery_sqs_heartbeat.common.values import did_you_mean
from celery_sqs_heartbeat.settings import PREFIX

UNKNOWN_QUEUE = Kind(
    "SQSHB-W009",
    "settings are given for a queue that does not exist",
    "Neither task_queues, -Q nor SQS has a queue of this name, so these settings have no effect.",
    "Correct the name in sqs_heartbeat_queues, or remove it.",
)
UNUSED_TOKEN = Kind(
    "SQSHB-W010",
    "a status token is set, but no status page",
    "Without sqs_heartbeat_status the worker serves no page, and the token has no effect.",
    "Set sqs_heartbeat_status, or remove the token.",
)
NO_OTEL = Kind(
    "SQSHB-E011",
    "opentelemetry is not installed",
    "sqs_heartbeat_otel needs it. A worker with --heartbeat-sqs exits.",
    "Run pip install 'celery-sqs-heartbeat[otel]', or remove sqs_heartbeat_otel.",
)
BROKEN_TASKS = Kind(
    "SQSHB-E012",
    "the app's tasks can't be imported",
    "A worker exits at startup. The doctor could not check the settings of the tasks.",
    "Correct the module or the package that the error names.",
)
NO_POOL = Kind(
    "SQSHB-E013",
    "the pool can't be used",
    "A worker with this pool exits.",
    "Correct -P or worker_pool, or install the pool's library.",
)

KINDS = (UNKNOWN_QUEUE, UNUSED_TOKEN, NO_OTEL, BROKEN_TASKS, NO_POOL)


def check_setup(app: AppFacts) -> Iterator[Finding]:
    """Check tasks, pool and libraries, without a call to SQS."""
    if app.broken_tasks is not None:
        yield BROKEN_TASKS.found(value=app.broken_tasks)
    if app.pool_fault is not None:
        yield NO_POOL.found(setting="worker_pool", value=app.pool_fault)
    if app.settings.otel and not app.has_otel:
        yield NO_OTEL.found(setting=PREFIX + "otel", value=True)
    if app.settings.status_token is not None and app.settings.status is None:
        yield UNUSED_TOKEN.found(setting=PREFIX + "status_token", value="...")


def check_names(asked: Iterable[QueueFacts], known: Iterable[str]) -> Iterator[Finding]:
    """Check the queues that only the settings name, by SQS's answers about them.

    Args:
        known: The names of the app's own queues.
    """
    names = tuple(known)
    for queue in asked:
        hint = did_you_mean(queue.name, names)
        # If SQS did not say whether the queue exists, only a similar name shows a typing error.
        if queue.found.tried is Tried.ALLOWED or not (queue.found.tried is Tried.NO_QUEUE or hint):
            continue
        yield UNKNOWN_QUEUE.found(
            queue=queue.name, setting=PREFIX + "queues", value=f"{queue.name!r}{hint}"
        )
