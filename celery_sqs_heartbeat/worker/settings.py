"""Reads a worker's settings from its app, and checks those of Celery that it computes with.

Celery accepts any value, and fails later: during a worker's start, or at its first task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import click
from celery.exceptions import ImproperlyConfigured, WorkerShutdown
from celery.platforms import EX_FAILURE

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.values import did_you_mean, is_number, resembles
from celery_sqs_heartbeat.errors import ConfigurationError, SqsHeartbeatError
from celery_sqs_heartbeat.settings import PREFIX, Settings, read_settings
from celery_sqs_heartbeat.sqs.options import creation_faults, option_faults

logger = get_logger(__name__)

#: The option of a task that has its own settings.
_TASK_OPTION = "sqs_heartbeat"
_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


class WorkerConfigurationError(ConfigurationError, ImproperlyConfigured, click.ClickException):
    """Settings are wrong. The `celery` command shows this without a traceback and exits with 1."""


def read_app_settings(app: Any, leases: int) -> Settings:
    """Return the settings of an app whose worker holds at most `leases` messages.

    Raises:
        WorkerConfigurationError: Some are wrong; it lists them all.
    """
    namespace = getattr(app, "namespace", None)
    names = [
        str(name)[len(namespace) + 1 :].lower()
        if namespace and str(name).startswith(f"{namespace}_")
        else str(name)
        for name in app.conf
    ]
    tasks = {
        name: task.sqs_heartbeat
        for name, task in sorted(app.tasks.items())
        if hasattr(task, "sqs_heartbeat")
    }
    faults = [*_misspelt(app)]
    try:
        settings = read_settings(app.conf.get, names=names, tasks=tasks, leases=leases)
    except ConfigurationError as error:
        faults = [*error.faults, *faults]
    if faults:
        raise WorkerConfigurationError([*map(naming(app), faults)])
    return settings


def naming(app: Any) -> Callable[[str], str]:
    """Return a function that puts the app's namespace before each setting named in a text.

    `task_acks_late` becomes `CELERY_TASK_ACKS_LATE`. With a namespace, Celery reads no other name.
    """
    namespace = getattr(app, "namespace", None)
    if not namespace:
        return str

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        is_setting = name.startswith(PREFIX) or name in app.conf
        return f"{namespace}_{name.upper()}" if is_setting else name

    return lambda text: _NAME.sub(rename, text)


def _misspelt(app: Any) -> Iterator[str]:
    """Yield a fault for each task option that looks like a misspelt `sqs_heartbeat`."""
    for name, task in sorted(app.tasks.items()):
        for option in vars(type(task)):
            if resembles(option, _TASK_OPTION):
                yield f"task {name!r}: {option}: has no effect; did you mean {_TASK_OPTION}?"


def read_worker_settings(app: Any, leases: int) -> Settings:
    """Return the settings of an app whose worker is about to start, with SQS as its broker.

    This also checks Celery's own settings and its transport options. With wrong ones, Celery would
    fail during the start. Options that matter only if a queue has to be created are warned of.

    Raises:
        WorkerConfigurationError: Some are wrong; it lists them all.
    """
    faults = [*celery_faults(app), *option_faults(app.conf.broker_transport_options)]
    faults = [*map(naming(app), faults)]
    try:
        settings = read_app_settings(app, leases)
    except ConfigurationError as error:
        raise WorkerConfigurationError([*error.faults, *faults]) from None
    if faults:
        raise WorkerConfigurationError(faults)
    for fault in map(naming(app), creation_faults(app.conf.broker_transport_options)):
        logger.warning(
            "sqs-heartbeat: %s, if kombu has to create a queue. For other queues it has no effect",
            fault,
        )
    return settings


def refuse_start(app: Any, error: SqsHeartbeatError) -> NoReturn:
    """End a worker that can't use its queues, or has no keeper, when it starts.

    This is a shutdown, because any other exception would end the worker with a traceback.

    Raises:
        WorkerShutdown: Has the exit status of a `WorkerConfigurationError`.
    """
    log_critical(app, error)
    raise WorkerShutdown(EX_FAILURE)


def log_critical(app: Any, error: SqsHeartbeatError) -> None:
    """Log an error that ends the worker, with the names of settings as the app writes them."""
    for line in naming(app)(str(error)).splitlines():
        logger.critical("%s", line)


def warn_of_unknown_queues(
    app: Any, configured: Iterable[str], is_listed: Callable[[str], bool]
) -> None:
    """Log a warning for each queue that has settings but exists neither in the app nor on SQS."""
    for name in unknown_queues(app, configured):
        if not is_listed(name):
            logger.warning(
                "sqs-heartbeat: %s has settings for queue %r, which is neither in %s, nor in -Q, "
                "nor on SQS%s",
                naming(app)(PREFIX + "queues"),
                name,
                naming(app)("task_queues"),
                did_you_mean(name, app.amqp.queues),
            )


def unknown_queues(app: Any, configured: Iterable[str]) -> list[str]:
    """Return the names of the queues that have settings but are not in the app."""
    return [name for name in configured if name not in app.amqp.queues]


def names_to_lease(app: Any) -> list[str]:
    """Return the names of the queues with leased messages that a worker starts with."""
    return [queue.name for queue in app.amqp.queues.consume_from.values() if not queue.no_ack]


def celery_faults(app: Any) -> Iterator[str]:
    """Yield a sentence for each of Celery's settings that no worker can work with."""
    for name, (is_right, rule) in _RULES.items():
        value = app.conf.get(name)
        if value is not None and not is_right(value):
            yield f"{name}={value!r}: must be {rule}"
    for name, task in sorted(app.tasks.items()):
        for limit in ("time_limit", "soft_time_limit"):
            value = getattr(task, limit, None)
            is_own = value is not None and value != app.conf.get(f"task_{limit}")
            if is_own and not _is_limit(value):
                yield f"task {name!r}: {limit}={value!r}: must be {_LIMIT}"
    if fault := queues_fault(app):
        yield fault


def queues_fault(app: Any) -> str | None:
    """Return why the app's queues can't be made from its settings, or None."""
    try:
        names = list(app.amqp.queues)
    except Exception as error:
        return (
            f"task_queues={app.conf.task_queues!r}: can't be used ({type(error).__name__}: "
            f"{error}); set a list of kombu.Queue, or a dict of dicts by queue name"
        )
    wrong = [name for name in names if not isinstance(name, str)]
    return (
        f"task_queues or task_default_queue names a queue {wrong[0]!r}: must be a string"
        if wrong
        else None
    )


def is_count(value: Any) -> bool:
    """Return whether Celery reads a value as a whole number, 0 or more."""
    # Celery converts a string to a number.
    try:
        return int(value) >= 0
    except (TypeError, ValueError):
        return False


def _is_concurrency(value: Any) -> bool:
    # Celery uses its default for a string that it does not know.
    return isinstance(value, str) or is_count(value)


def _is_limit(value: Any) -> bool:
    return is_number(value) and value > 0


_LIMIT = "a number of seconds above 0"
#: The check of each setting, and its rule in words.
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "worker_prefetch_multiplier": (is_count, "a whole number, 0 or more"),
    "worker_concurrency": (_is_concurrency, "a whole number of processes, or 'auto'"),
    "worker_eta_task_limit": (is_count, "a whole number, 0 or more"),
    "task_time_limit": (_is_limit, _LIMIT),
    "task_soft_time_limit": (_is_limit, _LIMIT),
}
