"""Reads what a Celery app is configured to do. Calls nobody."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from kombu.transport import SQS

from celery_sqs_heartbeat.cli.facts import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.pools import pool_fault
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.options import option_faults
from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.worker.celeryconf import celery_faults, is_count, queues_fault
from celery_sqs_heartbeat.worker.compat.versions import running_versions
from celery_sqs_heartbeat.worker.settings import read_app_settings
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep

#: Celery's default for worker_prefetch_multiplier.
_USUAL_MULTIPLIER = 4


class _OfflineChannel(SQS.Channel):
    """Knows what kombu makes of the configuration. kombu's own asks SQS when it is made."""

    def _update_queue_cache(self, queue_name_prefix: str) -> None:
        """Ask for no queues."""


@dataclass(frozen=True, kw_only=True)
class Broker:
    """How SQS is reached, and by which names the app's queues go there."""

    config: BrokerConfig
    channel: Any

    @classmethod
    def of_app(cls, app: Any) -> Broker:
        """Read the broker's configuration of an app.

        Raises:
            Exception: kombu can't use it.
        """
        channel = _OfflineChannel(app.connection_for_read().transport)
        return cls(config=BrokerConfig.of_channel(channel), channel=channel)

    def sqs_name(self, queue: str) -> str:
        """Return the name that a queue of the app has at SQS."""
        return str(self.channel.canonical_queue_name(queue))

    def predefined_url(self, queue: str) -> str | None:
        """Return the URL that `predefined_queues` has for a queue of the app."""
        url = self.config.predefined.get(self.sqs_name(queue), {}).get("url")
        return None if url is None else str(url)


def read_app(
    app: Any,
    *,
    pool: str | None = None,
    concurrency: int | None = None,
    broken_tasks: str | None = None,
) -> AppFacts:
    """Read what an app and its settings say.

    Args:
        pool: The worker's pool, where its command line says another than the app.
        concurrency: Likewise.
        broken_tasks: What `import_tasks` returned.
    """
    conf = app.conf
    pool = pool or str(conf.worker_pool)
    concurrency = 1 if pool == "solo" else concurrency or _whole(conf.worker_concurrency)
    of_celery = tuple(celery_faults(app))
    multiplier = _multiplier(conf.worker_prefetch_multiplier)
    settings, faults = _settings(app, concurrency * multiplier)
    of_tasks = () if of_celery else _tasks(app)
    # Since Celery 5.7 there is one for each; None there stands for the older one.
    of_failure = "task_acks_on_failure"
    if conf.get(of_failure) is None:
        of_failure = "task_acks_on_failure_or_timeout"
    return AppFacts(
        **_broker_facts(app),
        is_installed=SqsHeartbeatStep in app.steps["worker"],
        settings=settings,
        faults=(*faults, *of_celery),
        acks_late=bool(conf.task_acks_late),
        acks_on_failure=of_failure if conf.get(of_failure) else None,
        keeps_on_worker_lost=bool(
            conf.task_reject_on_worker_lost or conf.get("task_retry_on_worker_lost")
        ),
        tasks=of_tasks,
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


def queue_names(app: Any, chosen: Iterable[str] = ()) -> list[str]:
    """Return the names of the queues that a worker of the app consumes from.

    Args:
        chosen: As for the worker's option -Q; empty for all of the app's.

    Raises:
        KeyError: A chosen queue is not among the app's, and none may be added.
    """
    queues = app.amqp.queues
    return [queues[name].name for name in chosen] or list(queues.consume_from)


def is_made_up(app: Any) -> bool:
    """Return whether this is the app that Celery makes where its command line names none."""
    is_default = type(app.loader).__module__ == "celery.loaders.default"
    return bool(is_default and app.main == "default")


def import_tasks(app: Any) -> str | None:
    """Import the app's tasks as a worker does; return why that failed, or None."""
    try:
        app.loader.import_default_modules()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _multiplier(value: Any) -> int:
    """Return the prefetch multiplier; Celery's default where it is wrong, which is found so."""
    return int(value or 0) if is_count(value or 0) else _USUAL_MULTIPLIER


def _whole(concurrency: object) -> int:
    """Return the processes that a worker has: Celery takes "auto" and texts, too."""
    text = str(concurrency)
    return int(text) if text.isdecimal() and int(text) else os.cpu_count() or 1


def _settings(app: Any, leases: int) -> tuple[Settings, tuple[str, ...]]:
    try:
        return read_app_settings(app, leases), ()
    except ConfigurationError as error:
        return Settings(), error.faults


def _broker_facts(app: Any) -> Mapping[str, Any]:
    faults = tuple(option_faults(app.conf.broker_transport_options))
    try:
        connection = app.connection_for_read()
    except Exception as error:
        if not isinstance(app.conf.broker_transport_options, Mapping):
            return {"is_sqs": False, "broken_broker": "; ".join(faults)}
        name = type(error).__name__
        scheme = str(app.conf.broker_read_url or app.conf.broker_url).partition(":")[0]
        if isinstance(error, ImportError):
            return {"is_sqs": False, "transport": f"{scheme} (no library for it: {name})"}
        # Its text may have a part of the URL in it, which has keys.
        hint = (
            "broker_url can't be read: its port must be a number, and keys in it must be quoted "
            "as URLs are"
        )
        return {"is_sqs": False, "broken_broker": f"{hint} ({name})"}
    try:
        transport = connection.get_transport_cls()
    except Exception as error:
        # As kombu's transport for Redis, where no Redis client is installed.
        name = type(error).__name__
        return {"is_sqs": False, "transport": f"{connection.transport_cls} (no use here: {name})"}
    if not issubclass(transport, SQS.Transport):
        return {"is_sqs": False, "transport": transport.driver_type}
    return {
        "own_transport": None if transport in (SQS.Transport, Transport) else _path(transport),
        "option_faults": faults,
        # With wrong options kombu would only say so again, and less clearly.
        **({} if faults else {"broken_broker": _fault_of_queues(app), **_options(connection)}),
    }


def _fault_of_queues(app: Any) -> str | None:
    try:
        Broker.of_app(app)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _options(connection: Any) -> Mapping[str, Any]:
    options = connection.transport_options or {}
    interval = options.get("polling_interval")
    return {
        "wait_time": options.get("wait_time_seconds", SQS.Channel.default_wait_time_seconds),
        "polling_interval": SQS.Transport.polling_interval if interval is None else interval,
        "created_timeout": options.get("visibility_timeout"),
        "is_predefined": bool(options.get("predefined_queues")),
    }


def _tasks(app: Any) -> list[TaskFacts]:
    return [
        TaskFacts(name=name, acks_late=bool(task.acks_late), time_limit=task.time_limit)
        for name, task in sorted(app.tasks.items())
        if not name.startswith("celery.")
    ]


def _path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
