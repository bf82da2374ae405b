"""Makes a journal from the setting."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.journal_facts import Identity
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.journal.backlog import Backlog
from celery_sqs_heartbeat.journal.fields import Origin
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.journal_writer import JournalWriter, wall_clock
from celery_sqs_heartbeat.journal.packing import Opener
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.segments import Rotation, SegmentWriter
from celery_sqs_heartbeat.journal.shipping import Shipper, new_shipping_client
from celery_sqs_heartbeat.journal.spool import own_spool
from celery_sqs_heartbeat.settings.address import Destination, parse_target

#: How many events may wait to be written: some megabytes.
QUEUE_LIMIT = 10_000
#: Size of a spool, in bytes.
SPOOL_LIMIT = 1 << 30


def open_journal(
    target: str,
    *,
    spool: Path | None = None,
    spool_limit: int = SPOOL_LIMIT,
    queue_limit: int = QUEUE_LIMIT,
    rotation: Rotation | None = None,
    clock: Callable[[], float] = clocks.now,
    wall: Callable[[], int] = wall_clock,
    opener: Opener = FileIO,
    new_client: Callable[[], Any] = new_shipping_client,
    identity: Identity | None = None,
    began_at: float | None = None,
    last: int = 0,
    note: Callable[[int], None] = lambda number: None,
) -> Journal:
    """Return a journal, which begins when it is started. Makes no file and no call yet.

    Args:
        target: A folder, or `s3://bucket/prefix`.
        spool: The folder for segments that wait for their upload, which must belong to this user
            only. None for one in the folder for temporary files.
        spool_limit: Size of those segments, in bytes. Beyond it, the oldest are removed.
        queue_limit: How many events may wait to be written. More are dropped.
        rotation: When segments are closed.
        clock: The keeper's clock, in seconds.
        wall: Microseconds since 1970.
        opener: Makes files from descriptors, for writing.
        new_client: Returns a boto3 client for S3. The journal's own thread calls it.
        identity: The worker; None for this process.
        began_at: When its worker started, in seconds of `clock`; None for now.
        last: How many lines of this worker another process has numbered before.
        note: Is called with the number of each line.

    Raises:
        ConfigurationError: The target is invalid.
    """
    try:
        place = parse_target(target)
    except ValueError as error:
        raise ConfigurationError([f"sqs_heartbeat_journal={target!r}: {error}"]) from None
    shipper = None
    if isinstance(place, Destination):
        root = Root(spool, is_private=True) if spool else own_spool(place.bucket, place.prefix)
        shipper = Shipper(
            root, place, limit=spool_limit, clock=time.monotonic, new_client=new_client
        )
    else:
        root = Root(place, is_private=False)
    identity = identity or Identity.here(wall())
    backlog = Backlog(queue_limit, last, note)
    writer = SegmentWriter(
        # Every segment has at least one line, so these numbers are free.
        root,
        identity.wid,
        rotation or Rotation(),
        clock,
        opener=opener,
        first=last + 1,
    )
    scribe = JournalWriter(
        backlog,
        writer,
        root,
        Origin(wid=identity.wid, started_at=clock() if began_at is None else began_at, offset=0),
        clock=clock,
        wall=wall,
        shipper=shipper,
    )
    return Journal(backlog, scribe, identity, clock, shipper)
