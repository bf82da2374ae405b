"""Checks this machine's clock and the installed versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.worker.versions import TESTED, is_tested

#: SQS refuses calls whose signature's time differs by more than this, in seconds (AWS reference
#: guide, "Troubleshoot Signature Version 4 signing": five minutes).
SIGNATURE_SECONDS = 300
#: The smallest difference that can be measured, in seconds: the Date header has whole seconds,
#: and answers take time.
SKEW_SECONDS = 5

CLOCK_OFF = Kind(
    "SQSHB-E501",
    "this machine's clock is wrong",
    "SQS refuses calls that are signed with a time more than 5 minutes in the past or in the "
    "future.",
    "Set the clock. chrony or systemd-timesyncd keeps it right.",
)
CLOCK_DRIFTS = Kind(
    "SQSHB-W502",
    "this machine's clock differs from SQS's",
    "ETAs are off, and from a difference of 5 minutes SQS refuses every call. Leases do not "
    "depend on this clock.",
    "Set the clock. chrony or systemd-timesyncd keeps it right.",
)
CLOCK_RIGHT = Kind(
    "SQSHB-P503",
    "this machine's clock is right",
    "It agrees with the time in SQS's answers.",
)
CLOCK_UNKNOWN = Kind(
    "SQSHB-I504",
    "this machine's clock could not be checked",
    "No answer from SQS contained the time.",
)
TESTED_VERSIONS = Kind(
    "SQSHB-P505",
    "the versions are tested together",
    f"The tests run on Celery and kombu {TESTED}.",
)
UNTESTED = Kind(
    "SQSHB-W505",
    "these versions are not tested with celery-sqs-heartbeat",
    "The heartbeat changes parts of Celery and kombu that may change between versions.",
    f"Use Celery and kombu {TESTED}, or a newer celery-sqs-heartbeat.",
)

KINDS = (CLOCK_OFF, CLOCK_DRIFTS, CLOCK_RIGHT, CLOCK_UNKNOWN, TESTED_VERSIONS, UNTESTED)


def check_clock(skews: Iterable[float | None]) -> Iterator[Finding]:
    """Check how many seconds the clock was ahead at each answer from SQS.

    Without answers there is no finding.
    """
    answers = list(skews)
    known = [skew for skew in answers if skew is not None]
    if not known:
        if answers:
            yield CLOCK_UNKNOWN.found()
        return
    # A slow answer makes the clock seem ahead, so the smallest difference is the most exact.
    skew = min(known, key=abs)
    off = abs(skew)
    kind = CLOCK_OFF if off > SIGNATURE_SECONDS else CLOCK_DRIFTS
    if off > SKEW_SECONDS:
        yield kind.found(value=f"{off:.0f} s {'ahead' if skew > 0 else 'behind'}")
    else:
        yield CLOCK_RIGHT.found()


def check_versions(app: AppFacts) -> Iterator[Finding]:
    """Report the installed versions, and whether they are tested together."""
    installed = [f"{name} {version}" for name, version in app.versions.items()]
    tested = all(is_tested(app.versions[name]) for name in ("celery", "kombu"))
    kind = TESTED_VERSIONS if tested else UNTESTED
    yield kind.found(value=", ".join([*installed, f"pool {app.pool}"]))
