"""The group of the package's commands."""

from __future__ import annotations

import click

from celery_sqs_heartbeat.cli.doctor.command import doctor
from celery_sqs_heartbeat.cli.grafana.command import grafana
from celery_sqs_heartbeat.cli.iam.command import iam
from celery_sqs_heartbeat.cli.report.command import report
from celery_sqs_heartbeat.cli.status.command import status
from celery_sqs_heartbeat.cli.tune.command import tune


@click.group("sqs-heartbeat")
def sqs_heartbeat() -> None:
    """Check, inspect and tune the SQS heartbeat."""


for _command in (doctor, grafana, iam, report, status, tune):
    sqs_heartbeat.add_command(_command)
