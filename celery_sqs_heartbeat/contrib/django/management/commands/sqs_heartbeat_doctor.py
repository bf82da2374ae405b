"""`manage.py sqs_heartbeat_doctor`."""

from __future__ import annotations

import sys
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError  # type: ignore[import-untyped]

from celery_sqs_heartbeat.cli.doctor import (
    Concurrency,
    doctor,
    exit_status,
    print_findings,
    split,
)
from celery_sqs_heartbeat.cli.examination import examine
from celery_sqs_heartbeat.cli.findings import Finding
from celery_sqs_heartbeat.common.exits import REFUSED, printing
from celery_sqs_heartbeat.contrib.django.celery_app import find_celery_app


class Command(BaseCommand):
    """Runs the same checks as `celery -A proj sqs-heartbeat doctor`."""

    help = "Check what a Celery worker needs: settings, queues, permissions, this machine."
    # The doctor runs the checks that it needs itself, and must work if other checks fail.
    requires_system_checks = ()

    def add_arguments(self, parser: Any) -> None:
        """Add the options of the doctor."""
        for option in doctor.params:
            assert isinstance(option, click.Option)
            own: dict[str, Any] = (
                {"action": "store_true"} if option.is_flag else {"metavar": option.metavar}
            )
            parser.add_argument(*option.opts, help=option.help, **own)

    def handle(self, **options: Any) -> None:
        """Print the findings and exit with the doctor's status."""
        app = find_celery_app()
        try:
            queues = split(options["queues"])
            concurrency = options["concurrency"]
            if concurrency is not None:
                option = next(each for each in doctor.params if each.name == "concurrency")
                concurrency = Concurrency().convert(concurrency, option, None)
            findings = (
                [app]
                if isinstance(app, Finding)
                else examine(app, queues=queues, pool=options["pool"], concurrency=concurrency)
            )
            with printing():
                print_findings(
                    findings,
                    json=options["json"],
                    color=False if options["no_color"] else None,
                    file=self.stdout,
                )
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=REFUSED) from None
        if status := exit_status(findings, strict=options["strict"]):
            sys.exit(status)
