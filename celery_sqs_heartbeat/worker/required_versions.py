"""Lets a worker start only with versions of Celery and kombu that work with the heartbeat.

Other versions might never call our methods. The worker would then run without leases, on queues
whose visibility timeout is short because leases were expected.
"""

from __future__ import annotations

import logging

import click
from celery.exceptions import ImproperlyConfigured

from celery_sqs_heartbeat.errors import IncompatibleVersions
from celery_sqs_heartbeat.worker.compat.check import missing
from celery_sqs_heartbeat.worker.compat.versions import TESTED, is_tested, version_of

logger = logging.getLogger(__name__)

#: The packages whose names we override and use.
_PACKAGES = ("celery", "kombu", "billiard")


class WorkerVersionsError(IncompatibleVersions, ImproperlyConfigured, click.ClickException):
    """Names are missing. The `celery` command shows this without a traceback and exits with 1."""


def require_versions() -> None:
    """Check that Celery and kombu have every name that we need; warn about untested versions.

    Raises:
        WorkerVersionsError: A name is missing.
    """
    if faults := missing():
        raise WorkerVersionsError(faults, running(), TESTED)
    if not all(is_tested(version_of(name)) for name in ("celery", "kombu")):
        logger.warning(
            "sqs-heartbeat: celery-sqs-heartbeat is not tested with %s, only with Celery and "
            "kombu %s. All names that it needs exist in the installed versions",
            running(),
            TESTED,
        )


def running() -> str:
    """Return the versions of these packages in human-readable form."""
    return ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES)
