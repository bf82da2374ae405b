"""Adds the flag and the step to a Celery app."""

from __future__ import annotations

from celery import Celery
from celery.bin.base import CeleryOption

from celery_sqs_heartbeat.worker.children import end_pools_with_workers
from celery_sqs_heartbeat.worker.release_log import log_releases
from celery_sqs_heartbeat.worker.retrying import release_retries
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep

#: A module constant because Celery keeps options in a set, by identity.
HEARTBEAT_SQS = CeleryOption(
    ["--heartbeat-sqs/--no-heartbeat-sqs"],
    default=None,
    help_group="Features",
    help="Keep SQS messages invisible while their tasks run, and release them at once "
    "when they fail. Unset, the setting sqs_heartbeat_enabled decides.",
)


def install(app: Celery) -> Celery:
    """Give `app`'s worker the option --heartbeat-sqs and return the app.

    Call it where the app is made: the command line is read before Django is ready.
    Calling it twice is harmless, and without the flag or the setting
    `sqs_heartbeat_enabled` it changes nothing.
    """
    app.user_options["worker"].add(HEARTBEAT_SQS)
    app.steps["worker"].add(SqsHeartbeatStep)
    end_pools_with_workers()
    log_releases()
    release_retries()
    return app
