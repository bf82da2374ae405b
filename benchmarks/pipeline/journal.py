"""Writes events back as a journal: compressed segments of JSON Lines, as workers write them."""

from __future__ import annotations

import math
import shutil
from io import FileIO
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.journal.folder import Root, pack, segment_path
from celery_sqs_heartbeat.pipeline.schema import PARTITION
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of

#: About 3 MB before compression: what a worker with 30 events a second writes in five minutes,
#: after which a segment is closed.
SEGMENT_LINES = 10_000


def write_journal(events: DataFrame, journal: Path, *, with_skew: bool) -> None:
    """Write a journal of these events.

    Workers that wrote only a few lines share one segment.

    Args:
        with_skew: Whether the times are those of the workers' wrong clocks.
    """
    segments = math.ceil(events.count() / SEGMENT_LINES)
    skew = F.coalesce("skew_us", F.lit(0)) if with_skew else F.lit(0)
    as_written = events.withColumn("ts", F.col("ts") + skew)
    number = F.pmod(F.xxhash64("wid", F.lit(3)), F.lit(segments))
    lines = (
        as_written.withColumn(PARTITION, day_of(F.col("ts")))
        .withColumn("worker", F.format_string("w%011x", number))
        .repartition(8, PARTITION, "worker")
        .sortWithinPartitions(PARTITION, "worker", "wid", "seq")
        .select(F.to_json(F.struct(*(each.name for each in FIELDS))), PARTITION, "worker")
    )
    draft = journal.with_name(f".{journal.name}")
    plain = draft.with_suffix(".plain")
    for path in (plain, draft):
        shutil.rmtree(path, ignore_errors=True)
    lines.write.partitionBy(PARTITION, "worker").text(str(plain))
    for path in plain.glob(f"{PARTITION}=*/worker=*/part-*.txt"):
        day, worker = (part.partition("=")[2] for part in path.parts[-3:-1])
        target = Root(draft, is_private=False).located(segment_path(day, worker, 0), make=True)
        with FileIO(path) as source:
            torn = pack(source, target)
        assert not torn, path
    shutil.rmtree(plain)
    draft.rename(journal)
