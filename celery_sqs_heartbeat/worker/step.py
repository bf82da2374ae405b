"""Adds the flag and the step to a Celery app: `install`.

The step starts a worker's heartbeat, if it can use the installed Celery and kombu.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery, bootsteps
from celery.bin.base import CeleryOption

from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.worker.children import log_releases, prepare_pool_processes
from celery_sqs_heartbeat.worker.versions import (
    TESTED,
    WorkerVersionsError,
    installed,
    require_versions,
)

logger = logging.getLogger(__name__)

#: A module constant, because Celery keeps options in a set by identity.
HEARTBEAT_SQS = CeleryOption(
    ["--heartbeat-sqs/--no-heartbeat-sqs"],
    default=None,
    help_group="Features",
    help="Keep SQS messages invisible while their tasks run, and release them "
    "when they fail. Unset, the setting sqs_heartbeat_enabled decides.",
)
_SQS = "kombu.transport.SQS"


def install(app: Celery) -> Celery:
    """Add the option --heartbeat-sqs to `app`'s worker, and return the app.

    Call it where the app is made, because Celery reads the command line before Django is ready.
    Calling it twice is harmless. Without the flag or the setting `sqs_heartbeat_enabled`, it
    changes nothing, in a worker or in any other process.
    """
    app.user_options["worker"].add(HEARTBEAT_SQS)
    app.steps["worker"].add(SqsHeartbeatStep)
    prepare_pool_processes()
    return app


class SqsHeartbeatStep(bootsteps.StartStopStep):
    """Starts the heartbeat before the consumer connects.

    It comes after the pool, so no thread runs yet when the first children fork. It does not end
    the keeper in `stop`. In a warm shutdown, Celery calls `stop` while tasks still run, with no
    time limit, and their messages must stay leased.

    Modules that use Celery and kombu closely are imported only after their versions are checked.
    If one of them imports another name that is missing, the worker does not start either.
    """

    label = "SqsHeartbeat"
    conditional = True
    requires = {"celery.worker.components:Pool"}  # noqa: RUF012

    def __init__(self, parent: Any, heartbeat_sqs: bool | None = None, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        log_releases()
        try:
            self.enabled = _is_wanted(parent.app, heartbeat_sqs)
            if self.enabled:
                from celery_sqs_heartbeat.worker.heartbeat import WorkerHeartbeat

                self._heartbeat = WorkerHeartbeat(parent)
        except ImportError as error:
            raise WorkerVersionsError([str(error)], installed(), TESTED) from error

    def create(self, parent: Any) -> None:
        """Guard how the worker gives tasks to its pool, which exists by now."""
        self._heartbeat.create(parent)

    def start(self, parent: Any) -> None:
        """Connect the worker to its keeper, and have the keeper end with the worker."""
        self._heartbeat.start(parent)

    def close(self, parent: Any) -> None:
        """Release the messages of tasks that the pool has not started and will not run."""
        self._heartbeat.close(parent)

    def stop(self, parent: Any) -> None:
        """Do nothing, because tasks still run: see the class."""


def _is_wanted(app: Any, flag: bool | None) -> bool:
    if flag is None:
        flag = app.conf.get(PREFIX + "enabled")
    if not flag:
        return False
    transport = app.connection_for_read().transport
    # Compared by name: nothing of kombu is imported before its version is checked.
    if not any(each.__module__ == _SQS for each in type(transport).__mro__):
        logger.warning(
            "sqs-heartbeat: the broker is %s, not SQS: --heartbeat-sqs does nothing",
            transport.driver_type,
        )
        return False
    require_versions()
    from celery_sqs_heartbeat.transport import Transport, register_transport

    register_transport()
    if not isinstance(app.connection_for_read().transport, Transport):
        logger.warning(
            "sqs-heartbeat: broker_transport is %r, not kombu's own SQS transport: "
            "--heartbeat-sqs does nothing",
            app.conf.broker_transport,
        )
        return False
    return True
