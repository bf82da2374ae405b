"""The facts about a Celery app that need no call to SQS, and how they are read."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from celery.app.task import Task
from celery.concurrency import get_available_pool_names
from celery.signals import before_task_publish
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.cli.broker import BrokerFacts, read_broker
from celery_sqs_heartbeat.common.values import closest
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
#: Pools that are only looked up, because importing one of these could patch the standard library.
_LIBRARIES = ("eventlet", "gevent")
_GROUP, _DUPLICATE = "MessageGroupId", "MessageDeduplicationId"
#: The types from which Celery makes a router with a table. Any other router is code.
_ROUTES = (Mapping, list, tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """How one task is delivered.

    Attributes:
        retries: How often the task may be retried, if it sets `autoretry_for` or `max_retries`.
            None without a limit, 0 if it sets neither.
    """

    name: str
    acks_late: bool = True
    time_limit: float | None = None
    retries: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingFacts:
    """The facts about the messages that an app sends to FIFO queues.

    Attributes:
        groups: The message groups that its routes name.
        may_name_groups: Whether there is code that may name other groups.
        deduplicated_routes: The patterns of routes with a deduplication id.
    """

    groups: frozenset[str] = frozenset()
    may_name_groups: bool = False
    deduplicated_routes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """The facts about an app that need no call to SQS. Times are in seconds.

    Attributes:
        faults: The faults of the settings. If there are any, `settings` holds the defaults.
        acks_on_failure: The setting that makes the worker delete messages of failed tasks, if any.
        keeps_on_worker_lost: Whether a task whose process dies is tried again.
        concurrency: How many tasks the worker runs at a time.
        pool_fault: Why a worker can't use the pool.
        queue_fault: Why the app's settings for queues are unusable.
        broken_tasks: Why the app's tasks can't be imported.
        has_otel: Whether opentelemetry is installed.
        versions: The versions by package name.
    """

    broker: BrokerFacts = field(default_factory=BrokerFacts)
    is_installed: bool = True
    settings: Settings = field(default_factory=lambda: Settings(enabled=True))
    faults: Sequence[str] = ()
    acks_late: bool = True
    acks_on_failure: str | None = None
    keeps_on_worker_lost: bool = True
    tasks: Sequence[TaskFacts] = ()
    sending: SendingFacts = SendingFacts()
    time_limit: float | None = 3600
    prefetch_multiplier: int = 4
    concurrency: int = 2
    eta_task_limit: int | None = 100
    pool: str = "prefork"
    pool_fault: str | None = field(default=None, repr=False)
    queue_fault: str | None = field(default=None, repr=False)
    broken_tasks: str | None = field(default=None, repr=False)
    has_otel: bool = True
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"celery": "5.7.0", "kombu": "5.7.0"}
    )

    @property
    def leases(self) -> int:
        """The most messages that the worker holds at the same time; 0 for no limit."""
        return self.concurrency * self.prefetch_multiplier

    @property
    def early_tasks(self) -> list[str]:
        """The names of the tasks whose messages are deleted before they run."""
        return sorted(task.name for task in self.tasks if not task.acks_late)

    @property
    def retried_tasks(self) -> list[TaskFacts]:
        """The tasks that retry themselves and whose messages outlive their start."""
        return [task for task in self.tasks if task.acks_late and task.retries != 0]


def queue_names(app: Any, chosen: Iterable[str] = ()) -> list[str]:
    """Return the names of the queues that a worker of the app consumes from.

    Args:
        chosen: The queues of the option -Q; empty for all of the app's.

    Raises:
        KeyError: The app has no such queue, and Celery may not create it.
    """
    queues = app.amqp.queues
    return [queues[name].name for name in chosen] or list(queues.consume_from)


def is_made_up(app: Any) -> bool:
    """Return whether this is the app that Celery makes if the command line names none."""
    is_default = type(app.loader).__module__ == "celery.loaders.default"
    return bool(is_default and app.main == "default")


def import_tasks(app: Any) -> str | None:
    """Import the app's tasks like a worker. Return why that failed, or None."""
    try:
        app.loader.import_default_modules()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


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
    multiplier = conf.worker_prefetch_multiplier or 0
    # A wrong one is another finding.
    multiplier = int(multiplier) if is_count(multiplier) else _USUAL_MULTIPLIER
    settings, faults = _settings(app, concurrency * multiplier)
    # Celery 5.7 has a setting for failures alone. If it is None, the older one applies.
    of_failure = "task_acks_on_failure"
    if conf.get(of_failure) is None:
        of_failure = "task_acks_on_failure_or_timeout"
    return AppFacts(
        broker=read_broker(app),
        is_installed=SqsHeartbeatStep in app.steps["worker"],
        settings=settings,
        faults=(*faults, *of_celery),
        acks_late=bool(conf.task_acks_late),
        acks_on_failure=of_failure if conf.get(of_failure) else None,
        keeps_on_worker_lost=bool(
            conf.task_reject_on_worker_lost or conf.get("task_retry_on_worker_lost")
        ),
        tasks=() if of_celery else _tasks(app),
        sending=SendingFacts() if of_celery else _sending(app),
        time_limit=None if of_celery else conf.task_time_limit,
        prefetch_multiplier=multiplier,
        concurrency=concurrency,
        eta_task_limit=conf.get("worker_eta_task_limit"),
        pool=pool,
        pool_fault=_pool_fault(pool),
        queue_fault=queues_fault(app),
        broken_tasks=broken_tasks,
        has_otel=find_spec("opentelemetry") is not None,
        versions=running_versions(),
    )


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


def _sending(app: Any) -> SendingFacts:
    """Return the groups and ids that an app's routes set, and whether code may set others."""
    routes = app.conf.task_routes
    routers = routes if isinstance(routes, (list, tuple)) else filter(None, [routes])
    routers = list(routers)
    found = [pair for router in routers if isinstance(router, _ROUTES) for pair in _routes(router)]
    return SendingFacts(
        groups=frozenset(str(route[_GROUP]) for _, route in found if _GROUP in route),
        may_name_groups=bool(before_task_publish.receivers)
        or any(not isinstance(router, _ROUTES) for router in routers)
        or any(type(task).apply_async is not Task.apply_async for task in app.tasks.values()),
        deduplicated_routes=tuple(sorted(name for name, route in found if _DUPLICATE in route)),
    )


def _routes(router: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pattern and the options of each route that has any."""
    for pair in router.items() if isinstance(router, Mapping) else router:
        if pair and isinstance(pair, (list, tuple)) and isinstance(pair[-1], Mapping):
            # A pattern may be a regular expression.
            yield str(getattr(pair[0], "pattern", pair[0])), pair[-1]


def _pool_fault(pool: str) -> str | None:
    """Return why a worker can't use a pool, or None.

    Args:
        pool: One of Celery's names, or "MODULE:CLASS".
    """
    names = sorted(get_available_pool_names())
    if pool in names:
        if pool in _LIBRARIES and find_spec(pool) is None:
            return f"{pool} (the package {pool} is not installed)"
        return None
    if ":" not in pool and "." not in pool:
        close = closest(pool, names)
        hint = f"did you mean {close}? " if close else ""
        return f"{pool} ({hint}the pools are {', '.join(names)}, or MODULE:CLASS)"
    try:
        symbol_by_name(pool)
    except Exception as error:
        return f"{pool} (it can't be imported: {type(error).__name__}: {error})"
    return None
