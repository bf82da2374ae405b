"""Reads the facts about an app from the app and its settings."""

from __future__ import annotations

import itertools
import os
from importlib.util import find_spec
from typing import Any

from celery.app.task import Task

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts, SendingFacts, TaskFacts
from celery_sqs_heartbeat.cli.app.broker_reader import read_broker
from celery_sqs_heartbeat.cli.app.pool_faults import pool_fault
from celery_sqs_heartbeat.cli.app.sending_reader import read_sending
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.options import try_session_function
from celery_sqs_heartbeat.worker.settings import (
    celery_faults,
    is_count,
    queues_fault,
    read_app_settings,
)
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep
from celery_sqs_heartbeat.worker.versions import running_versions

#: Celery's default for worker_prefetch_multiplier.
_USUAL_MULTIPLIER = 4


def read_app(
    app: Any,
    *,
    pool: str | None = None,
    concurrency: int | None = None,
    broken_tasks: str | None = None,
) -> AppFacts:
    """Return the facts about an app.

    Args:
        pool: The worker's pool, if its command line overrides the app's.
        concurrency: The worker's concurrency, if its command line overrides the app's.
        broken_tasks: The return value of `import_tasks`.
    """
    conf = app.conf
    pool = pool or str(conf.worker_pool)
    concurrency = 1 if pool == "solo" else concurrency or _whole(conf.worker_concurrency)
    of_celery = tuple(celery_faults(app))
    multiplier = _multiplier(conf.worker_prefetch_multiplier)
    settings, faults = _settings(app, concurrency * multiplier)
    of_tasks = () if of_celery else _tasks(app)
    # Celery 5.7 has a setting for failures alone. If it is None, the older one applies.
    of_failure = "task_acks_on_failure"
    if conf.get(of_failure) is None:
        of_failure = "task_acks_on_failure_or_timeout"
    broker = read_broker(app)
    return AppFacts(
        transport=broker.transport,
        is_sqs=broker.is_sqs,
        own_transport=broker.own_transport,
        broken_broker=broker.broken_broker,
        option_faults=broker.option_faults,
        creation_faults=broker.creation_faults,
        wait_time=broker.wait_time,
        polling_interval=broker.polling_interval,
        created_timeout=broker.created_timeout,
        is_predefined=broker.is_predefined,
        plain_http=broker.plain_http,
        is_installed=SqsHeartbeatStep in app.steps["worker"],
        settings=settings,
        faults=(*faults, *of_celery),
        acks_late=bool(conf.task_acks_late),
        acks_on_failure=of_failure if conf.get(of_failure) else None,
        keeps_on_worker_lost=bool(
            conf.task_reject_on_worker_lost or conf.get("task_retry_on_worker_lost")
        ),
        tasks=of_tasks,
        sending=SendingFacts() if of_celery else read_sending(app),
        time_limit=None if of_celery else conf.task_time_limit,
        prefetch_multiplier=multiplier,
        concurrency=concurrency,
        eta_task_limit=conf.get("worker_eta_task_limit"),
        pool=pool,
        pool_fault=pool_fault(pool),
        queue_fault=queues_fault(app),
        broken_tasks=broken_tasks,
        has_otel=find_spec("opentelemetry") is not None,
        versions=running_versions(),
    )


def _multiplier(value: Any) -> int:
    """Return the prefetch multiplier, or Celery's default if it is invalid (another finding)."""
    return int(value or 0) if is_count(value or 0) else _USUAL_MULTIPLIER


def _whole(concurrency: object) -> int:
    """Return the worker's number of processes. Celery accepts "auto" and strings, too."""
    text = str(concurrency)
    return int(text) if text.isdecimal() and int(text) else os.cpu_count() or 1


def _settings(app: Any, leases: int) -> tuple[Settings, tuple[str, ...]]:
    try:
        settings = read_app_settings(app, leases)
        if settings.session:
            # A worker does the same at startup.
            try_session_function(settings.session)
    except ConfigurationError as error:
        return Settings(), error.faults
    return settings, ()


def _tasks(app: Any) -> list[TaskFacts]:
    return [
        TaskFacts(
            name=name,
            acks_late=bool(task.acks_late),
            time_limit=task.time_limit,
            retries=_retries(task),
        )
        for name, task in sorted(app.tasks.items())
        if not name.startswith("celery.")
    ]


def _retries(task: Any) -> int | None:
    """Return how often a task may be retried, as defined by `TaskFacts.retries`."""
    options: dict[str, Any] = getattr(task, "retry_kwargs", None) or {}
    most = options.get("max_retries", task.max_retries)
    # Every task inherits Celery's default, even if it never retries.
    own = itertools.takewhile(lambda each: each is not Task, type(task).__mro__)
    says_so = getattr(task, "autoretry_for", ()) or any("max_retries" in vars(each) for each in own)
    if not says_so:
        return 0
    return max(0, int(most)) if isinstance(most, int) else None
