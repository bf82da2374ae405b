"""Checks when messages are acked, and how long a worker holds them."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind

#: With a prefetch multiplier above this, most of a worker's messages only wait.
MANY_PREFETCHED = 10
#: Pools that can't stop a task.
UNSTOPPABLE = ("threads", "solo")

EARLY = Kind(
    "SQSHB-W101",
    "messages are deleted before their tasks run",
    "If a task fails or its worker is killed, the task is lost, because its message is already "
    "deleted.",
    "Set task_acks_late = True.",
)
EARLY_TASKS = Kind(
    "SQSHB-I102",
    "these tasks' messages are deleted before they run",
    "The tasks have acks_late=False. If a run is interrupted, the task is lost.",
    "Remove acks_late=False from these tasks, unless it is intended.",
)
FAILED_DELETED = Kind(
    "SQSHB-W103",
    "messages of failed tasks are deleted",
    "If a task raises an error, SQS does not deliver its message again and does not move it to "
    "the dead-letter queue.",
    "Set this to False, unless tasks retry themselves.",
)
LOST_DELETED = Kind(
    "SQSHB-W104",
    "messages of tasks whose process dies are deleted",
    "If a pool process is killed, for example by the system because memory is short, its task "
    "is lost.",
    "Set task_reject_on_worker_lost = True, and give the queues a redrive policy.",
)
NO_BOUND = Kind(
    "SQSHB-W105",
    "a worker receives as many messages as it can keep extended",
    "One worker may hold thousands of messages while other workers have nothing to do.",
    "Set worker_prefetch_multiplier to a value from 1 to 4.",
)
MANY = Kind(
    "SQSHB-I106",
    "a worker prefetches many messages",
    "They wait in this worker behind running tasks, and other workers can't receive them.",
    "Set worker_prefetch_multiplier to a value from 1 to 4, unless tasks take milliseconds.",
)
ETA_UNBOUND = Kind(
    "SQSHB-I107",
    "a worker holds any number of tasks with an ETA",
    "Each task that is due within sqs_heartbeat_hold_eta raises the number of messages that "
    "one worker holds and extends.",
    "If you use ETAs or countdowns, set worker_eta_task_limit.",
)
NO_LIMIT = Kind(
    "SQSHB-I108",
    "tasks have no time limit",
    "A task that hangs keeps its message until max_lease has passed, 12 hours by default.",
    "Set task_time_limit, or a shorter sqs_heartbeat_max_lease.",
)
LIMIT_TOO_LONG = Kind(
    "SQSHB-W109",
    "tasks may run longer than their messages are extended",
    "After max_lease the keeper stops extending the message. It becomes visible, and its task "
    "starts a second time.",
    "Set a time limit below sqs_heartbeat_max_lease, which is 12 hours at most.",
)
CANT_TERMINATE = Kind(
    "SQSHB-W110",
    "a task whose lease is lost can't be stopped",
    'sqs_heartbeat_on_lost is "terminate", and this pool can\'t stop a task.',
    'Use the prefork pool, or "revoke" and current_lease.ensure_valid() in the task.',
)

KINDS = (
    EARLY,
    EARLY_TASKS,
    FAILED_DELETED,
    LOST_DELETED,
    NO_BOUND,
    MANY,
    ETA_UNBOUND,
    NO_LIMIT,
    LIMIT_TOO_LONG,
    CANT_TERMINATE,
)


def check_delivery(app: AppFacts) -> Iterator[Finding]:
    """Check Celery's settings that decide when a message is deleted or released."""
    yield from _check_acks(app)
    yield from _check_amount(app)
    yield from _check_time(app)
    if app.settings.may_terminate() and app.pool in UNSTOPPABLE:
        yield CANT_TERMINATE.found(setting="worker_pool", value=app.pool)


def _check_acks(app: AppFacts) -> Iterator[Finding]:
    if not app.acks_late:
        yield EARLY.found(setting="task_acks_late", value=False)
        return
    if early := [task.name for task in app.tasks if not task.acks_late]:
        yield EARLY_TASKS.found(value=", ".join(sorted(early)))
    if app.acks_on_failure:
        yield FAILED_DELETED.found(setting=app.acks_on_failure, value=True)
        if not app.keeps_on_worker_lost:
            yield LOST_DELETED.found(setting="task_reject_on_worker_lost", value=False)


def _check_amount(app: AppFacts) -> Iterator[Finding]:
    multiplier = app.prefetch_multiplier
    if not multiplier:
        yield NO_BOUND.found(setting="worker_prefetch_multiplier", value=multiplier)
    elif multiplier > MANY_PREFETCHED:
        yield MANY.found(setting="worker_prefetch_multiplier", value=multiplier)
    if not app.eta_task_limit:
        yield ETA_UNBOUND.found(setting="worker_eta_task_limit", value=repr(app.eta_task_limit))


def _check_time(app: AppFacts) -> Iterator[Finding]:
    """Check the time limits against the shortest max_lease that applies."""
    rules, settings = app.settings.rules, app.settings
    leases = [settings.for_queue(queue).terms(1).max_lease for queue in settings.queues]
    max_lease = min([rules.terms(1).max_lease, *leases])
    if app.time_limit is None:
        yield NO_LIMIT.found(setting="task_time_limit", value="None")
    elif app.time_limit > max_lease:
        yield LIMIT_TOO_LONG.found(
            setting="task_time_limit", value=f"{app.time_limit:g} (max_lease {max_lease:g})"
        )
    for task in app.tasks:
        lease = rules.under(settings.tasks.get(task.name)).terms(1).max_lease
        if task.time_limit not in (None, app.time_limit) and task.time_limit > lease:
            yield LIMIT_TOO_LONG.found(
                setting=f"time_limit of task {task.name}",
                value=f"{task.time_limit:g} (max_lease {lease:g})",
            )
