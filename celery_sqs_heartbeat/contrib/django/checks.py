"""The system checks: those of the doctor that need no SQS."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # type: ignore[import-untyped] # noqa: A004

from celery_sqs_heartbeat.cli.checks.broker import NO_APP, NOT_SQS
from celery_sqs_heartbeat.cli.checks.finding import Finding, Severity
from celery_sqs_heartbeat.cli.examining import examine_offline
from celery_sqs_heartbeat.cli.printing import headline
from celery_sqs_heartbeat.cli.reading import read_app
from celery_sqs_heartbeat.contrib.django.celery_app import find_celery_app

#: Not errors here: another broker is fine on a developer's machine, and an error would keep
#: `manage.py` from doing anything.
_NOT_SO_BAD = (NOT_SQS.id, NO_APP.id)


def check_heartbeat(**_: Any) -> list[CheckMessage]:
    """Check the settings of the heartbeat, and those of Celery that it goes by.

    Of tasks it sees those that are imported by now. Celery's way to import them all has
    Django run its checks.
    """
    app = find_celery_app()
    findings = [NO_APP.found()] if app is None else examine_offline(read_app(app))
    return [
        message_of(finding)
        for finding in findings
        if finding.severity in (Severity.ERROR, Severity.WARNING)
    ]


def message_of(finding: Finding) -> CheckMessage:
    """Return a finding of the doctor as Django's; the number in its id is the same."""
    is_error = finding.severity is Severity.ERROR and finding.id not in _NOT_SO_BAD
    number = finding.id[-3:]
    kind, letter = (Error, "E") if is_error else (Warning, "W")
    return kind(headline(finding), hint=finding.fix, id=f"celery_sqs_heartbeat.{letter}{number}")
