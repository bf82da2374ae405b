"""The pipeline finds in a fleet's journals what the simulation knows, and nothing else."""

from __future__ import annotations

import collections
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import zstandard
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.journal.folder import closed_path, segment_path, unpack
from celery_sqs_heartbeat.journal.reading import closed_segments, read_journal
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.jobs import build
from celery_sqs_heartbeat.pipeline.lines import journal_days
from celery_sqs_heartbeat.pipeline.report.queries import IN_NO_JOURNAL, ask
from celery_sqs_heartbeat.pipeline.survey import running_terms
from celery_sqs_heartbeat.pipeline.tables.duplicates import CAUSES
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse
from fleet.generator import DEAD_LETTERS, IDLE, JOURNAL, TRUTH, make_fleet
from fleet.profile import QUEUES
from tests.pipeline.builders import SECOND

pytestmark = pytest.mark.thorough

#: Two clocks, each corrected to within the way of an answer.
TOLERANCE_US = 5_000
TABLES = (schema.WORKERS, schema.ATTEMPTS, schema.DUPLICATES, schema.RECOVERIES)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fleet")
    make_fleet(out, workers=4, hours=1.8, seed=64)
    return out


@pytest.fixture(scope="module")
def truth(fleet: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    pairs = [json.loads(line) for line in (fleet / TRUTH).read_text().splitlines()]
    return {(pair["msg"], pair["first_wid"], pair["second_wid"]): pair for pair in pairs}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse made day by day, wherever the lines are."""
    folder = tmp_path_factory.mktemp("mangled")
    journal, tables = str(mangle(fleet / JOURNAL, 1, folder / "journal")), folder / "tables"
    days = journal_days(spark, journal)
    assert days is not None
    assert days.first < days.last
    for day in (days.first, days.last):
        build(spark, journal, Warehouse(spark, str(tables)), Span(day, day), tables=TABLES)
    return tables


@pytest.fixture(scope="module")
def found(tables: Path) -> list[dict[str, Any]]:
    """The duplicates."""
    return rows_of(tables, schema.DUPLICATES)


def rows_of(tables: Path, table: schema.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(tables / table.name).to_pylist()
    return rows


def mangle(journal: Path, seed: int, into: Path) -> Path:
    """Write a journal again: its lines in any order, in other segments, a tenth of them twice."""
    chance = random.Random(seed)
    lines = collections.defaultdict(list)
    for segment in closed_segments(journal):
        lines[segment.parent.relative_to(journal)] += list(unpack(segment.read_bytes()))
    for folder, told in lines.items():
        day, wid = (part.partition("=")[2] for part in folder.parts)
        told += chance.sample(told, len(told) // 10)
        chance.shuffle(told)
        pieces = chance.randint(1, 3)
        for number in range(pieces):
            path = closed_path(into / segment_path(day, wid, number + 1))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zstandard.compress(b"".join(told[number::pieces])))
    return into


def test_every_cause_occurs_in_the_fleet(truth: dict[Any, dict[str, Any]]) -> None:
    # Its queues are standard ones, which refuse no delete. A call slow enough to cost a lease is
    # given up before it is answered, which is `network`.
    # No lines are lost there.
    rest = {"unknown", "delete-refused", "sqs-slow", "lines-lost"}
    assert {pair["cause"] for pair in truth.values()} == set(CAUSES) - rest


def test_each_duplicate_is_found_with_its_cause_and_no_other(
    truth: dict[tuple[Any, ...], dict[str, Any]], found: list[dict[str, Any]]
) -> None:
    causes = {(row["msg"], row["first_wid"], row["second_wid"]): row["cause"] for row in found}
    assert len(found) == len(causes)
    assert causes == {key: pair["cause"] for key, pair in truth.items()}


def test_the_result_of_both_executions_is_found(
    truth: dict[tuple[Any, ...], dict[str, Any]], found: list[dict[str, Any]]
) -> None:
    """Of those whose end a journal tells."""
    for row in found:
        pair = truth[row["msg"], row["first_wid"], row["second_wid"]]
        if row["overlap_us"] is not None and row["second_finished"] is not None:
            assert abs(row["overlap_us"] - pair["overlap"] * SECOND) < TOLERANCE_US, row
        if row["both_succeeded"] is not None:
            assert row["both_succeeded"] == pair["both_succeeded"], row


def test_receives_without_an_execution_are_counted(
    spark: SparkSession, fleet: Path, tables: Path
) -> None:
    """Those of a journal, and those that only the receive count shows."""
    attempts = Warehouse(spark, str(tables)).read(schema.ATTEMPTS)
    counted: dict[str, list[int]] = {}
    for row in ask("receives", {"attempts": attempts}, None):
        if row["why"] is not None:
            sums = counted.setdefault(row["queue"], [0, 0])
            sums[row["why"] == IN_NO_JOURNAL] += row["receives"]
    truth = json.loads((fleet / IDLE).read_text())
    assert counted == {queue: both for queue, both in truth.items() if any(both)}
    assert all(map(sum, zip(*counted.values(), strict=True)))


def test_the_messages_in_the_dead_letter_queue_are_the_dead_letters(
    fleet: Path, tables: Path
) -> None:
    dead = [json.loads(line)["msg"] for line in (fleet / DEAD_LETTERS).read_text().splitlines()]
    rows = [row for row in rows_of(tables, schema.RECOVERIES) if row["is_dead_letter"]]
    assert sorted(row["msg"] for row in rows) == sorted(dead) != []
    assert not any(row["is_censored"] or row["recovery_us"] is not None for row in rows)


def test_the_first_lines_say_the_settings_that_the_fleet_runs_with(fleet: Path) -> None:
    for line in read_journal(fleet / JOURNAL):
        if line["ev"] == "worker-started":
            for queue in QUEUES:
                terms = running_terms(line["settings"], queue.name, queue.visibility_timeout)
                assert terms == replace(queue.terms, extend=True)
            assert set(line["versions"]) > {"celery", "celery-sqs-heartbeat"}


def test_a_copy_of_the_fleet_has_its_own_messages_workers_and_duplicates(tmp_path: Path) -> None:
    one = make_fleet(tmp_path / "one", workers=2, hours=0.3, seed=26)
    two = make_fleet(tmp_path / "two", workers=2, hours=0.3, seed=26, copies=2)
    assert (two.messages, two.lines, two.workers) == tuple(
        2 * count for count in (one.messages, one.lines, one.workers)
    )
    lines = list(read_journal(tmp_path / "two" / JOURNAL))
    assert len(lines) == two.lines
    assert len({line["wid"] for line in lines}) == two.workers
    causes = collections.Counter(pair["cause"] for pair in one.pairs)
    assert collections.Counter(pair["cause"] for pair in two.pairs) == {
        cause: 2 * count for cause, count in causes.items()
    }
    assert len({pair["msg"] for pair in two.pairs}) == 2 * len({p["msg"] for p in one.pairs}) > 0
    assert {pair["msg"] for pair in two.pairs} <= {line.get("msg") for line in lines}
