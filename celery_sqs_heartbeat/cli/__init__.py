"""`celery -A proj sqs-heartbeat`: commands for people who run workers.

Every `celery` command imports this module, so it imports little.
"""

from __future__ import annotations

import click

from celery_sqs_heartbeat.cli.doctor import doctor
from celery_sqs_heartbeat.cli.iam import iam
from celery_sqs_heartbeat.cli.report import grafana, report
from celery_sqs_heartbeat.cli.status import status
from celery_sqs_heartbeat.cli.tune import tune

__all__ = ["sqs_heartbeat"]


@click.group("sqs-heartbeat")
def sqs_heartbeat() -> None:
    """Check, inspect and tune the SQS heartbeat."""


for _command in (doctor, grafana, iam, report, status, tune):
    sqs_heartbeat.add_command(_command)
