"""Lets a worker start only with versions of Celery and kombu that work with the heartbeat.

Other versions might never call our methods. The worker would then run without leases, on queues
whose visibility timeout is short because leases were expected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from platform import python_version
from typing import Any

import click
from celery.exceptions import ImproperlyConfigured

from celery_sqs_heartbeat import __version__
from celery_sqs_heartbeat.errors import IncompatibleVersions

logger = logging.getLogger(__name__)

#: The versions of Celery and kombu that the tests run on. Older ones are refused.
OLDEST, NEWEST, TESTED = (5, 5), (5, 7), "5.5 to 5.7"
#: Names that we override, replace, or use although they are private, by their module or class.
#: docs/private-names.md says why.
NAMES: Mapping[str, str] = {
    "_socket": "socket",
    "_thread:RLock": "_is_owned",
    "billiard.pool:ApplyResult": "_write_to",
    "billiard.pool:Pool": "_cache _pool",
    "celery._state": "_task_stack",
    "celery.app.task:Task": "retry",
    "celery.concurrency.asynpool:AsynPool": "flush",
    "celery.concurrency.base:BasePool": "flush on_apply",
    "celery.concurrency.prefork:TaskPool": "_pool",
    "celery.worker.request:Request": "acknowledge cancel execute_using_pool on_accepted on_failure "
    "on_retry on_timeout reject revoked",
    "celery.worker.worker:WorkController": "stop terminate wait_for_soft_shutdown",
    "concurrent.futures.thread:ThreadPoolExecutor": "_shutdown _shutdown_lock",
    "kombu.asynchronous.hub:Hub": "_ready_lock",
    "kombu.transport": "_transport_cache",
    "kombu.transport.SQS:Channel": "QoS _active_queues _get_bulk _message_to_python _new_queue "
    "_noack_queues _queue_cache _restore _schedule_queue _size _tag_to_queue _update_queue_cache "
    "basic_ack basic_cancel basic_consume basic_qos basic_reject close fetch_message_attributes",
    "kombu.transport.SQS:QoS": "_delivered _extract_backoff_policy_configuration_and_message ack",
    "kombu.transport.SQS:Transport": "Channel _callbacks close_connection drain_events",
}
#: The first kombu that has them, if it is not the oldest.
_NEW = {"_ready_lock": (5, 7)}


class WorkerVersionsError(IncompatibleVersions, ImproperlyConfigured, click.ClickException):
    """A version can't be used. `celery` shows this without a traceback and exits with 1."""


def require_versions() -> None:
    """Check that Celery and kombu have every name that we need; warn about untested versions.

    Raises:
        WorkerVersionsError: A version is too old, or a name is missing.
    """
    celery, kombu = (_pair(running_versions()[name]) for name in ("celery", "kombu"))
    is_old = min(celery, kombu) < OLDEST
    if faults := ["Celery or kombu is older than 5.5"] if is_old else [*_missing(kombu)]:
        raise WorkerVersionsError(faults, installed(), TESTED)
    if max(celery, kombu) > NEWEST:
        logger.warning(
            "sqs-heartbeat: the installed versions are not tested together: %s. The tests run on "
            "Celery and kombu %s. All names that the heartbeat needs exist",
            installed(),
            TESTED,
        )


def _missing(kombu: tuple[int, ...]) -> Iterator[str]:
    for path, names in NAMES.items():
        try:
            owner = resolve_name(path)
        except (ImportError, AttributeError):
            yield f"{path} is missing"
            continue
        for name in names.split():
            if kombu >= _NEW.get(name, OLDEST) and not _has(owner, name):
                yield f"{path}.{name} is missing"


def _has(owner: Any, name: str) -> bool:
    """Return whether a module, a class or its instances (by an `__init__`) have a name."""
    codes = (getattr(each.__init__, "__code__", None) for each in getattr(owner, "__mro__", ()))
    return hasattr(owner, name) or any(code and name in code.co_names for code in codes)


def is_tested(version: str) -> bool:
    """Return whether the tests run on that version of Celery or kombu."""
    return OLDEST <= _pair(version) <= NEWEST


def _pair(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def installed() -> str:
    """Return the running versions in human-readable form."""
    return ", ".join(f"{name} {version}" for name, version in running_versions().items())


def running_versions() -> Mapping[str, str]:
    """Return the versions of Python and of the packages that matter, by name."""
    names = ("celery", "kombu", "billiard", "boto3")
    theirs = {name: str(resolve_name(f"{name}:__version__")) for name in names}
    return {"python": python_version(), "celery-sqs-heartbeat": __version__, **theirs}
