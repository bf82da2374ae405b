"""Checks of this machine: its clock and what is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.worker.compat.versions import TESTED, is_tested

#: SQS refuses calls signed at another time than this, in seconds (AWS reference guide,
#: "Troubleshoot Signature Version 4 signing": five minutes).
SIGNATURE_SECONDS = 300
#: The Date header has whole seconds, and the answer travelled: less can't be seen.
SKEW_SECONDS = 5

CLOCK_OFF = Kind(
    "SQSHB-E501",
    "this machine's clock is wrong",
    "SQS refuses calls that were signed more than 5 minutes ago, or ahead",
    "set the clock: chrony or systemd-timesyncd keep it right",
)
CLOCK_DRIFTS = Kind(
    "SQSHB-W502",
    "this machine's clock differs from SQS's",
    "leases do not go by it, but from 5 minutes on SQS refuses every call, and ETAs are off",
    "set the clock: chrony or systemd-timesyncd keep it right",
)
CLOCK_RIGHT = Kind("SQSHB-P503", "this machine's clock is right", "as far as SQS's answers tell")
CLOCK_UNKNOWN = Kind(
    "SQSHB-I504",
    "this machine's clock could not be compared",
    "no answer of SQS had the time in it",
)
TESTED_VERSIONS = Kind(
    "SQSHB-P505",
    "the versions are tested together",
    f"the tests run on Celery and kombu {TESTED}",
)
UNTESTED = Kind(
    "SQSHB-W505",
    "these versions are not tested with celery-sqs-heartbeat",
    "the heartbeat changes parts of Celery and kombu that may change between versions",
    f"use Celery and kombu {TESTED}, or a newer celery-sqs-heartbeat",
)

KINDS = (CLOCK_OFF, CLOCK_DRIFTS, CLOCK_RIGHT, CLOCK_UNKNOWN, TESTED_VERSIONS, UNTESTED)


def check_clock(skews: Iterable[float | None]) -> Iterator[Finding]:
    """Check the seconds by which the clock was ahead, by each answer of SQS.

    Nothing is said where there were no answers.
    """
    answers = list(skews)
    known = [skew for skew in answers if skew is not None]
    if not known:
        if answers:
            yield CLOCK_UNKNOWN.found()
        return
    # Time spent on the way makes the clock seem ahead; the best answer says most.
    skew = min(known, key=abs)
    off = abs(skew)
    kind = CLOCK_OFF if off > SIGNATURE_SECONDS else CLOCK_DRIFTS
    if off > SKEW_SECONDS:
        yield kind.found(value=f"{off:.0f} s {'ahead' if skew > 0 else 'behind'}")
    else:
        yield CLOCK_RIGHT.found()


def check_versions(app: AppFacts) -> Iterator[Finding]:
    """Say what is installed, and whether it is tested."""
    installed = [f"{name} {version}" for name, version in app.versions.items()]
    tested = all(is_tested(app.versions[name]) for name in ("celery", "kombu"))
    kind = TESTED_VERSIONS if tested else UNTESTED
    yield kind.found(value=", ".join([*installed, f"pool {app.pool}"]))
