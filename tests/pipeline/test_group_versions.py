"""Journals of versions with and without message groups, read together."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline.storage.line_frames import read_lines
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.events import events_of
from celery_sqs_heartbeat.pipeline.tables.group_stops import group_stops_of
from celery_sqs_heartbeat.pipeline.tables.rejects import rejects_of
from celery_sqs_heartbeat.pipeline.tables.workers import workers_of
from tests.pipeline.builders import DAY, SECOND, rows_of
from tests.pipeline.journals import Worker, write_all

pytestmark = pytest.mark.thorough

QUEUE = "orders.fifo"
FAILED = {"end": "message-released", "cause": "failed", "vt": 5}


def old_worker() -> Worker:
    """Return one whose version knew no groups."""
    worker = Worker("w-old", DAY)
    worker.attempt("m1", 1, DAY + 10 * SECOND, 5, queue=QUEUE, **FAILED)
    worker.attempt("m9", 1, DAY + 10 * SECOND, 5, queue=QUEUE, **FAILED)
    return worker


def new_worker() -> Worker:
    """Return one that took over a message of the old one, and has its own messages."""
    worker, fifo = Worker("w-new", DAY), {"queue": QUEUE, "grp": "A"}
    worker.attempt("m1", 2, DAY + 30 * SECOND, 5, "message-deleted", **fifo, sn="101")
    worker.attempt("m2", 1, DAY + 40 * SECOND, 5, **FAILED, **fifo, sn="102")
    worker.attempt("m3", 1, DAY + 40 * SECOND, 5, "message-deleted", grp="tenant")
    return worker


def tables(spark: SparkSession, journal: Path) -> tuple[DataFrame, DataFrame]:
    """Return the attempts and the stops of a journal, of which every line was read."""
    lines = read_lines(spark, str(journal))
    assert rejects_of(lines).isEmpty()
    events = events_of(lines)
    workers = workers_of(events)
    attempts = attempts_of(events, workers)
    return attempts, group_stops_of(attempts, workers)


@pytest.fixture(scope="module")
def mixed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[DataFrame, DataFrame]:
    journal = tmp_path_factory.mktemp("mixed")
    return tables(spark, write_all(journal, [old_worker(), new_worker()]))


def test_lines_of_an_old_version_have_no_group_and_the_others_keep_theirs(
    mixed: tuple[DataFrame, DataFrame],
) -> None:
    assert rows_of(mixed[0], "wid", "msg", "grp", "sn") == {
        ("w-old", "m1", None, None),
        ("w-old", "m9", None, None),
        ("w-new", "m1", "A", "101"),
        ("w-new", "m2", "A", "102"),
        ("w-new", "m3", "tenant", None),
    }


def test_a_failure_in_an_old_journal_is_a_stop_where_a_new_one_tells_the_group(
    mixed: tuple[DataFrame, DataFrame],
) -> None:
    assert rows_of(mixed[1], "msg", "grp", "attempts", "outcome") == {
        ("m1", "A", 2, "succeeded"),
        ("m2", "A", 1, "unknown"),
    }


def test_an_old_journal_alone_gives_attempts_without_groups_and_no_stop(
    spark: SparkSession, tmp_path: Path
) -> None:
    attempts, stops = tables(spark, write_all(tmp_path, [old_worker()]))
    assert rows_of(attempts, "msg", "grp", "sn") == {("m1", None, None), ("m9", None, None)}
    assert stops.isEmpty()
