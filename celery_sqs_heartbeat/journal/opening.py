"""Makes a journal from what the setting says."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.journal.backlog import Backlog
from celery_sqs_heartbeat.journal.identity import Identity
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.mapping import Origin
from celery_sqs_heartbeat.journal.packing import Opener
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.s3 import new_shipping_client
from celery_sqs_heartbeat.journal.scribe import Scribe, wall_clock
from celery_sqs_heartbeat.journal.shipping import Shipper
from celery_sqs_heartbeat.journal.spool import own_spool
from celery_sqs_heartbeat.journal.writer import Rotation, SegmentWriter
from celery_sqs_heartbeat.settings.target import Destination, parse_target

#: Events that wait to be written at the most: some megabytes.
QUEUE_LIMIT = 10_000
#: Of a spool, in bytes.
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
    """Return a journal that begins with its `start`. Makes no file and no call yet.

    Args:
        target: A folder, or `s3://bucket/prefix`.
        spool: The folder for segments that wait to be shipped, which must be this user's
            alone; one among the temporary files where none is given.
        spool_limit: Of those segments, in bytes; the oldest go.
        queue_limit: Events that wait to be written; more are dropped.
        rotation: When segments are closed.
        clock: That of the keeper, in seconds.
        wall: Microseconds since 1970.
        opener: Makes files of descriptors, for writing.
        new_client: Returns a boto3 client for S3. Called on a thread of the journal's.
        identity: Whose journal it is; that of this process where none is given.
        began_at: When its worker began, in seconds of `clock`; now where no time is given.
        last: How many lines of it another process has begun before.
        note: Is called with each number that a line was given.

    Raises:
        ConfigurationError: The target is none.
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
        # Every segment has a line at least: these numbers are free.
        root,
        identity.wid,
        rotation or Rotation(),
        clock,
        opener=opener,
        first=last + 1,
    )
    scribe = Scribe(
        backlog,
        writer,
        root,
        Origin(wid=identity.wid, started_at=clock() if began_at is None else began_at, offset=0),
        clock=clock,
        wall=wall,
        shipper=shipper,
    )
    return Journal(backlog, scribe, identity, clock, shipper)
