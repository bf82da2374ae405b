"""The group of the package's own commands."""

from __future__ import annotations

import click

from celery_sqs_heartbeat.cli.doctor import doctor
from celery_sqs_heartbeat.cli.grafana import grafana
from celery_sqs_heartbeat.cli.iam import iam
from celery_sqs_heartbeat.cli.report import report
from celery_sqs_heartbeat.cli.status import status
from celery_sqs_heartbeat.cli.tune import tune


@click.group("sqs-heartbeat")
def sqs_heartbeat() -> None:
    """Look into the SQS heartbeat."""


for _command in (doctor, grafana, iam, report, status, tune):
    sqs_heartbeat.add_command(_command)
