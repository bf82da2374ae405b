"""The system checks: the doctor's checks that need no call to SQS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # type: ignore[import-untyped] # noqa: A004

from celery_sqs_heartbeat.cli.app import import_tasks
from celery_sqs_heartbeat.cli.examination import examine_offline
from celery_sqs_heartbeat.cli.findings import Finding, Severity, headline
from celery_sqs_heartbeat.contrib.django.celery_app import find_celery_app

#: The variable that `celery --skip-checks` sets.
_SKIP = "CELERY_SKIP_CHECKS"
#: These are warnings in Django. Another broker is fine on a developer's machine, and an error would
#: keep `manage.py` from doing anything.
_NOT_SO_BAD = ("SQSHB-E002", "SQSHB-E007")


def check_heartbeat(**_: Any) -> list[CheckMessage]:
    """Check the settings of the heartbeat, and Celery's settings that affect it.

    Imports the app's tasks, because they have settings, too. Makes no connections.
    """
    app = find_celery_app()
    if isinstance(app, Finding):
        findings = [app]
    else:
        with _without_checks():
            broken = import_tasks(app)
        findings = examine_offline(app, broken_tasks=broken)
    return [
        message_of(finding)
        for finding in findings
        if finding.severity in (Severity.ERROR, Severity.WARNING)
    ]


@contextmanager
def _without_checks() -> Iterator[None]:
    """Keep Celery from running Django's checks when it imports tasks: they are running already."""
    before = os.environ.get(_SKIP)
    os.environ[_SKIP] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SKIP]
        else:
            os.environ[_SKIP] = before


def message_of(finding: Finding) -> CheckMessage:
    """Return a finding of the doctor as a Django message. The number in its id is the same."""
    is_error = finding.severity is Severity.ERROR and finding.id not in _NOT_SO_BAD
    number = finding.id[-3:]
    kind, letter = (Error, "E") if is_error else (Warning, "W")
    return kind(headline([finding]), hint=finding.fix, id=f"celery_sqs_heartbeat.{letter}{number}")
