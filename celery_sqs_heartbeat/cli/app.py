"""The facts about a Celery app and its broker that need no call to SQS, and how they are read."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from celery.app.task import Task
from celery.concurrency import get_available_pool_names
from celery.signals import before_task_publish
from kombu.transport import SQS
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.common.values import closest
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.settings.address import is_loopback
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.options import creation_faults, option_faults, try_session_function
from celery_sqs_heartbeat.transport import Transport
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


class _OfflineChannel(SQS.Channel):
    """Reads the configuration like kombu's channel, which calls SQS when it is created."""

    def _update_queue_cache(self, queue_name_prefix: str) -> None:
        """Do not list queues."""


class Broker:
    """How SQS is reached, and the names of the app's queues at SQS.

    Raises:
        Exception: kombu can't use the app's configuration of its broker.
    """

    def __init__(self, app: Any) -> None:
        self._channel: Any = _OfflineChannel(app.connection_for_read().transport)
        self.config = BrokerConfig.of_channel(self._channel)

    def sqs_name(self, queue: str) -> str:
        """Return the name that a queue of the app has at SQS."""
        return str(self._channel.canonical_queue_name(queue))

    def predefined_url(self, queue: str) -> str | None:
        """Return the URL that `predefined_queues` has for a queue of the app."""
        url = self.config.predefined.get(self.sqs_name(queue), {}).get("url")
        return None if url is None else str(url)

    @property
    def plain_http(self) -> str | None:
        """SQS's address if it is on another machine and has no TLS, else None."""
        scheme = "https" if self.config.use_ssl else "http"
        usual = f"{scheme}://sqs.{self.config.region}.amazonaws.com"
        endpoint = urlsplit(self.config.endpoint_url or usual)
        host = endpoint.hostname
        is_plain = endpoint.scheme == "http" and host is not None and not is_loopback(host)
        return f"http://{host}" if is_plain else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The facts about the app's broker. Times are in seconds.

    Attributes:
        sqs: How SQS is reached; None if it can't be called with the app's configuration.
        transport: The name of its transport.
        is_sqs: Whether the broker is SQS, by kombu's transport or one that derives from it.
        own_transport: A transport that derives from kombu's. The heartbeat does not replace it.
        broken: Why kombu can't use the broker's configuration.
        option_faults: The faults of the transport options.
        creation_faults: The faults of those that matter only when kombu creates a queue.
        plain_http: The address of SQS, if it is not this machine's and has no TLS.
    """

    sqs: Broker | None = None
    transport: str = "sqs"
    is_sqs: bool = True
    own_transport: str | None = None
    broken: str | None = field(default=None, repr=False)
    option_faults: Sequence[str] = ()
    creation_faults: Sequence[str] = ()
    wait_time: int = 10
    polling_interval: float = 1
    created_timeout: object = None
    is_predefined: bool = True
    plain_http: str | None = field(default=None, repr=False)


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
class AppFacts:
    """The facts about an app that need no call to SQS. Times are in seconds.

    Attributes:
        faults: The faults of the settings. If there are any, `settings` holds the defaults.
        acks_on_failure: The setting that makes the worker delete messages of failed tasks, if any.
        keeps_on_worker_lost: Whether a task whose process dies is tried again.
        groups: The message groups that the app's routes name.
        may_name_groups: Whether there is code that may name other groups.
        deduplicated_routes: The patterns of routes with a deduplication id.
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
    groups: frozenset[str] = frozenset()
    may_name_groups: bool = False
    deduplicated_routes: Sequence[str] = ()
    time_limit: float | None = 3600
    prefetch_multiplier: int = 4
    concurrency: int = 2
    eta_task_limit: int | None = 100
    pool: str = "prefork"
    pool_fault: str | None = field(default=None, repr=False)
    queue_fault: str | None = field(default=None, repr=False)
    broken_tasks: str | None = field(default=None, repr=False)
    has_otel: bool = True
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def leases(self) -> int:
        """The most messages that the worker holds at the same time; 0 for no limit."""
        return self.concurrency * self.prefetch_multiplier

    @property
    def early_tasks(self) -> list[str]:
        """The names of the tasks whose messages are deleted before they run."""
        return sorted(task.name for task in self.tasks if not task.acks_late)


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
    multiplier = conf.worker_prefetch_multiplier or 0
    # A wrong one is another finding.
    multiplier = int(multiplier) if is_count(multiplier) else _USUAL_MULTIPLIER
    settings, faults = Settings(), list(celery_faults(app))
    # Without sound settings of Celery's own, these can't be read.
    of_tasks = {"time_limit": None} if faults else _of_tasks(app)
    try:
        settings = read_app_settings(app, concurrency * multiplier)
        if settings.session:
            # A worker does the same at startup.
            try_session_function(settings.session)
    except ConfigurationError as error:
        settings, faults = Settings(), [*error.faults, *faults]
    # Celery 5.7 has a setting for failures alone. If it is None, the older one applies.
    of_failure = "task_acks_on_failure"
    if conf.get(of_failure) is None:
        of_failure = "task_acks_on_failure_or_timeout"
    return AppFacts(
        broker=read_broker(app),
        is_installed=SqsHeartbeatStep in app.steps["worker"],
        settings=settings,
        faults=faults,
        acks_late=bool(conf.task_acks_late),
        acks_on_failure=of_failure if conf.get(of_failure) else None,
        keeps_on_worker_lost=bool(
            conf.task_reject_on_worker_lost or conf.get("task_retry_on_worker_lost")
        ),
        prefetch_multiplier=multiplier,
        concurrency=concurrency,
        eta_task_limit=conf.get("worker_eta_task_limit"),
        pool=pool,
        pool_fault=_pool_fault(pool),
        queue_fault=queues_fault(app),
        broken_tasks=broken_tasks,
        has_otel=find_spec("opentelemetry") is not None,
        versions=running_versions(),
        **of_tasks,
    )


def _whole(concurrency: object) -> int:
    """Return the worker's number of processes. Celery accepts "auto" and strings, too."""
    text = str(concurrency)
    return int(text) if text.isdecimal() and int(text) else os.cpu_count() or 1


def _of_tasks(app: Any) -> dict[str, Any]:
    """Return the facts about an app's tasks, and about the groups and ids that its routes set."""
    routes = app.conf.task_routes
    routers = routes if isinstance(routes, (list, tuple)) else [routes] if routes else []
    tables = [router for router in routers if isinstance(router, _ROUTES)]
    found = [pair for table in tables for pair in _routes(table)]
    return {
        "time_limit": app.conf.task_time_limit,
        "tasks": [
            TaskFacts(
                name=name,
                acks_late=bool(task.acks_late),
                time_limit=task.time_limit,
                retries=_retries(task),
            )
            for name, task in sorted(app.tasks.items())
            if not name.startswith("celery.")
        ],
        "groups": frozenset(str(route[_GROUP]) for _, route in found if _GROUP in route),
        "may_name_groups": bool(before_task_publish.receivers)
        or len(tables) < len(routers)
        or any(type(task).apply_async is not Task.apply_async for task in app.tasks.values()),
        "deduplicated_routes": sorted(name for name, route in found if _DUPLICATE in route),
    }


def _routes(router: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pattern and the options of each route that has any."""
    for pair in router.items() if isinstance(router, Mapping) else router:
        if pair and isinstance(pair, (list, tuple)) and isinstance(pair[-1], Mapping):
            # A pattern may be a regular expression.
            yield str(getattr(pair[0], "pattern", pair[0])), pair[-1]


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


def _pool_fault(pool: str) -> str | None:
    """Return why a worker can't use a pool, or None.

    Args:
        pool: One of Celery's names, or "MODULE:CLASS".
    """
    names = sorted(get_available_pool_names())
    if pool in names:
        is_missing = pool in _LIBRARIES and find_spec(pool) is None
        return f"{pool} (the package {pool} is not installed)" if is_missing else None
    if ":" not in pool and "." not in pool:
        close = closest(pool, names)
        hint = f"did you mean {close}? " if close else ""
        return f"{pool} ({hint}the pools are {', '.join(names)}, or MODULE:CLASS)"
    try:
        symbol_by_name(pool)
    except Exception as error:
        return f"{pool} (it can't be imported: {type(error).__name__}: {error})"
    return None


def read_broker(app: Any) -> BrokerFacts:
    """Return the facts about an app's broker, and whether kombu can use its configuration."""
    faults = tuple(option_faults(app.conf.broker_transport_options))
    try:
        connection = app.connection_for_read()
    except Exception as error:
        if not isinstance(app.conf.broker_transport_options, Mapping):
            return BrokerFacts(is_sqs=False, broken="; ".join(faults))
        return _unusable(app, error)
    try:
        transport = connection.get_transport_cls()
    except Exception as error:
        # For example kombu's transport for Redis, if no Redis client is installed.
        unusable = f"{connection.transport_cls} (not usable here: {type(error).__name__})"
        return BrokerFacts(is_sqs=False, transport=unusable)
    if not issubclass(transport, SQS.Transport):
        return BrokerFacts(is_sqs=False, transport=transport.driver_type)
    is_own = transport not in (SQS.Transport, Transport)
    own_transport = f"{transport.__module__}:{transport.__qualname__}" if is_own else None
    if faults:
        # With wrong options kombu would report the same faults, but less clearly.
        return BrokerFacts(own_transport=own_transport, option_faults=faults)
    sqs = plain_http = broken = None
    try:
        sqs = Broker(app)
        plain_http = sqs.plain_http
    except Exception as error:
        sqs, broken = None, f"{type(error).__name__}: {error}"
    options = connection.transport_options or {}
    interval = options.get("polling_interval")
    return BrokerFacts(
        sqs=sqs,
        own_transport=own_transport,
        broken=broken,
        plain_http=plain_http,
        wait_time=options.get("wait_time_seconds", SQS.Channel.default_wait_time_seconds),
        polling_interval=SQS.Transport.polling_interval if interval is None else interval,
        created_timeout=options.get("visibility_timeout"),
        creation_faults=tuple(creation_faults(options)),
        is_predefined=bool(options.get("predefined_queues")),
    )


def _unusable(app: Any, error: Exception) -> BrokerFacts:
    """Return the facts that follow from an error about the broker's URL."""
    name = type(error).__name__
    if isinstance(error, ImportError):
        scheme = str(app.conf.broker_read_url or app.conf.broker_url).partition(":")[0]
        return BrokerFacts(is_sqs=False, transport=f"{scheme} (no library for it: {name})")
    # A text that is not kombu's own may quote a part of the URL, which contains keys.
    fault = (
        "broker_url can't be read: its port must be a number, and keys in it must be "
        f"percent-encoded ({name})"
    )
    if isinstance(error, KeyError):
        # kombu's error. Its text names only the part before "://", which contains no keys.
        what = " ".join(str(error.args[0]).split())
        fault = f"broker_url can't be used: {what}: begin it with sqs://"
    return BrokerFacts(is_sqs=False, broken=fault)
