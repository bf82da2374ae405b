"""The Django app, with its system checks."""

from __future__ import annotations

from django.apps import AppConfig  # type: ignore[import-untyped]
from django.core.checks import register  # type: ignore[import-untyped]


class SqsHeartbeatConfig(AppConfig):
    """Checks the heartbeat's settings with every `manage.py check`."""

    name = "celery_sqs_heartbeat.contrib.django"
    label = "celery_sqs_heartbeat"
    verbose_name = "SQS heartbeat"

    def ready(self) -> None:
        """Register the system checks."""
        from celery_sqs_heartbeat.contrib.django.checks import check_heartbeat

        register(check_heartbeat, "sqs_heartbeat")
