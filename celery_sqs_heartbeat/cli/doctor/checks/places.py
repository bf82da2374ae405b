"""Checks where a worker on this machine writes its journal and serves its status page."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Kind
from celery_sqs_heartbeat.cli.doctor.place_facts import Place, PlaceFacts
from celery_sqs_heartbeat.settings import PREFIX, Settings

#: A busy worker's journal fills this many bytes in a few hours.
LITTLE_SPACE = 256 << 20

NO_JOURNAL = Kind(
    "SQSHB-E506",
    "the journal can't be written",
    "The worker runs without a journal and drops the records.",
    "Correct sqs_heartbeat_journal, or give the worker's user write permission there.",
)
LITTLE_LEFT = Kind(
    "SQSHB-W507",
    "there is little space for the journal",
    "When the file system is full, the worker drops journal records.",
    "Remove old days of the journal, or choose a larger file system.",
)
NO_BUCKET = Kind(
    "SQSHB-E508",
    "the journal's bucket can't be used",
    "Segments wait in the folder for temporary files. Beyond 1 GiB the oldest are lost.",
    "Correct sqs_heartbeat_journal, boto3's region and credentials, or the S3 endpoint.",
)
NOT_PUT = Kind(
    "SQSHB-I509",
    "the permission to write to the journal's bucket was not tried",
    "Trying s3:PutObject would write an object.",
    "Make sure that the worker's role has s3:PutObject on the prefix.",
)
NO_PAGE = Kind(
    "SQSHB-E510",
    "the status page's address can't be used",
    "The worker runs without the page and without metrics for Prometheus.",
    "Choose a free port of this machine, or 127.0.0.1 as the host. Port 0 takes any free port.",
)
PAGE_RUNS = Kind(
    "SQSHB-I511",
    "a worker already serves its status page there",
    "The port is used by a worker with the heartbeat, probably this app's own.",
    "Nothing, if it is the only one. Each worker on a host needs its own port.",
)

KINDS = (NO_JOURNAL, LITTLE_LEFT, NO_BUCKET, NOT_PUT, NO_PAGE, PAGE_RUNS)


def check_places(settings: Settings, facts: PlaceFacts) -> Iterator[Finding]:
    """Check the journal's place and the status page's address."""
    journal, page = PREFIX + "journal", PREFIX + "status"
    if facts.journal is Place.UNUSABLE:
        yield NO_JOURNAL.found(setting=journal, value=f"{settings.journal} ({facts.journal_why})")
    elif facts.journal is Place.NO_BUCKET:
        yield NO_BUCKET.found(setting=journal, value=f"{settings.journal} ({facts.journal_why})")
    elif facts.journal is Place.UNTRIED:
        yield NOT_PUT.found(setting=journal, value=settings.journal)
    if facts.space is not None and facts.space < LITTLE_SPACE:
        left = f"{facts.space >> 20} MiB left"
        yield LITTLE_LEFT.found(setting=journal, value=f"{settings.journal} ({left})")
    if facts.page is Place.UNUSABLE:
        yield NO_PAGE.found(setting=page, value=f"{settings.status} ({facts.page_why})")
    elif facts.page is Place.OURS:
        yield PAGE_RUNS.found(setting=page, value=settings.status)
