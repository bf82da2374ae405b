"""Has a worker start only on versions of Celery and kombu that the heartbeat works with.

On others our methods might never be called: the worker would run without leases, on queues
whose visibility timeout is short because of them.
"""

from __future__ import annotations

import logging

import click
from celery.exceptions import ImproperlyConfigured

from celery_sqs_heartbeat.errors import IncompatibleVersions
from celery_sqs_heartbeat.worker.compat.check import missing
from celery_sqs_heartbeat.worker.compat.versions import TESTED, is_tested, version_of

logger = logging.getLogger(__name__)

#: Those whose names we override and use.
_PACKAGES = ("celery", "kombu", "billiard")


class WorkerVersionsError(IncompatibleVersions, ImproperlyConfigured, click.ClickException):
    """Names are missing; the `celery` command shows it without a traceback and exits with 1."""


def require_versions() -> None:
    """Check that all we need of Celery and kombu is there; warn of versions not tested.

    Raises:
        WorkerVersionsError: Something is missing.
    """
    if faults := missing():
        raise WorkerVersionsError(faults, running(), TESTED)
    if not all(is_tested(version_of(name)) for name in ("celery", "kombu")):
        logger.warning(
            "sqs-heartbeat: celery-sqs-heartbeat is not tested with %s: it is with Celery and "
            "kombu %s; all names that it needs are there",
            running(),
            TESTED,
        )


def running() -> str:
    """Return the versions of those packages, for people to read."""
    return ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES)
