"""Checks of when messages are acked, and of how many a worker holds for how long."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind

#: Messages for each of a worker's processes beyond which most of them only wait.
MANY_PREFETCHED = 10
#: Pools that can't stop a task.
UNSTOPPABLE = ("threads", "solo")

EARLY = Kind(
    "SQSHB-W101",
    "messages are deleted before their tasks run",
    "a task that fails, or whose worker is killed, is lost: there is no message to come back",
    "set task_acks_late = True",
)
EARLY_TASKS = Kind(
    "SQSHB-I102",
    "these tasks' messages are deleted before they run",
    "they have acks_late=False of their own: a run that is cut short is lost",
    "remove acks_late=False from them, if that is not meant",
)
FAILED_DELETED = Kind(
    "SQSHB-W103",
    "messages of failed tasks are deleted",
    "a task that raises is not tried again by SQS and never gets to the dead-letter queue",
    "set it to False, unless tasks retry themselves",
)
LOST_DELETED = Kind(
    "SQSHB-W104",
    "messages of tasks whose process dies are deleted",
    "a pool process that is killed, by the system for its memory, say, takes its task with it",
    "set task_reject_on_worker_lost = True, and give the queues a redrive policy",
)
NO_BOUND = Kind(
    "SQSHB-W105",
    "a worker takes as many messages as it can keep extended",
    "those are thousands, leased by one worker while others have nothing to do",
    "set worker_prefetch_multiplier to 1 to 4",
)
MANY = Kind(
    "SQSHB-I106",
    "a worker takes many messages in advance",
    "they wait leased behind those that run, and other workers can't have them",
    "set worker_prefetch_multiplier to 1 to 4, unless tasks take milliseconds",
)
ETA_UNBOUND = Kind(
    "SQSHB-I107",
    "tasks with an ETA are held without bound",
    "each that is due within sqs_heartbeat_hold_eta raises the number of messages that one worker "
    "holds and extends",
    "set worker_eta_task_limit, if you use ETAs or countdowns",
)
NO_LIMIT = Kind(
    "SQSHB-I108",
    "tasks have no time limit",
    "a task that hangs keeps its message until max_lease is over, 12 hours by default",
    "set task_time_limit, or a shorter sqs_heartbeat_max_lease",
)
LIMIT_TOO_LONG = Kind(
    "SQSHB-W109",
    "tasks may run for longer than their messages are kept",
    "after max_lease the message is not extended any more, and a second copy starts",
    "set a time limit below sqs_heartbeat_max_lease, which is 12 hours at most",
)
CANT_TERMINATE = Kind(
    "SQSHB-W110",
    "a task whose lease is lost can't be stopped",
    'sqs_heartbeat_on_lost is "terminate", and this pool can\'t stop a task',
    'use the prefork pool, or "revoke" and current_lease.ensure_valid() in the task',
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
    """Check the settings of Celery that decide over a message's end."""
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
    """Check the time limits against the shortest max_lease that holds."""
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
