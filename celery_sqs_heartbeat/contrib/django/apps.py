"""The Django app, with its system checks."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig  # type: ignore[import-untyped]
from django.core.checks import register  # type: ignore[import-untyped]


class SqsHeartbeatConfig(AppConfig):
    """Checks the heartbeat's settings with every `manage.py check`."""

    name = "celery_sqs_heartbeat.contrib.django"
    label = "celery_sqs_heartbeat"
    verbose_name = "SQS heartbeat"

    #: The current Celery app of the thread that sets up Django. Other threads, such as that of
    #: `runserver`, have none.
    celery_app: Any = None

    def ready(self) -> None:
        """Register the system checks, and remember the current Celery app."""
        from celery_sqs_heartbeat.contrib.django.celery_app import current_celery_app
        from celery_sqs_heartbeat.contrib.django.checks import check_heartbeat

        self.celery_app = current_celery_app()
        register(check_heartbeat, "sqs_heartbeat")
