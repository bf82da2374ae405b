"""Adds the flag and the step to a Celery app."""

from __future__ import annotations

from celery import Celery
from celery.bin.base import CeleryOption

from celery_sqs_heartbeat.worker.children import prepare_pool_processes
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep

#: A module constant, because Celery keeps options in a set by identity.
HEARTBEAT_SQS = CeleryOption(
    ["--heartbeat-sqs/--no-heartbeat-sqs"],
    default=None,
    help_group="Features",
    help="Keep SQS messages invisible while their tasks run, and release them "
    "when they fail. Unset, the setting sqs_heartbeat_enabled decides.",
)


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
