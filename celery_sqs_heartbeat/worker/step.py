"""The step that starts a worker's heartbeat, on versions of Celery and kombu that it knows."""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps

from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.worker.required_versions import require_versions

logger = logging.getLogger(__name__)

_SQS = "kombu.transport.SQS"


class SqsHeartbeatStep(bootsteps.StartStopStep):
    """Starts the heartbeat before the consumer connects.

    It comes after the pool, so that no thread runs yet when the first children fork. It
    does not end the keeper in `stop`: in a warm shutdown that is called while tasks still
    run for as long as they like, and they are the ones to be kept.

    What uses Celery and kombu closely is imported once their versions are checked: a name
    that is gone would be an `ImportError` here, or in the app that calls `install`.
    """

    label = "SqsHeartbeat"
    conditional = True
    requires = {"celery.worker.components:Pool"}  # noqa: RUF012

    def __init__(self, parent: Any, heartbeat_sqs: bool | None = None, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.enabled = _is_wanted(parent.app, heartbeat_sqs)
        if self.enabled:
            from celery_sqs_heartbeat.worker.heartbeat import WorkerHeartbeat

            self._heartbeat = WorkerHeartbeat(parent)

    def create(self, parent: Any) -> None:
        """Guard how the worker gives tasks to its pool, which is made by now."""
        self._heartbeat.create(parent)

    def start(self, parent: Any) -> None:
        """Start the keeper and have it ended with the worker."""
        self._heartbeat.start(parent)

    def close(self, parent: Any) -> None:
        """Release what the pool has not begun and will not run any more."""
        self._heartbeat.close(parent)

    def stop(self, parent: Any) -> None:
        """Do nothing: tasks still run, see the class."""


def _is_wanted(app: Any, flag: bool | None) -> bool:
    if flag is None:
        flag = app.conf.get(PREFIX + "enabled")
    if not flag:
        return False
    transport = app.connection_for_read().transport
    # By its name: nothing of kombu's is imported before its version is checked.
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
