from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import zstandard
from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.journal.fields import WORKER_STARTED, fields_of, line_of
from celery_sqs_heartbeat.journal.folder import SegmentWriter
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.pipeline.engine.intake import write_lines
from celery_sqs_heartbeat.pipeline.errors import PipelineError
from celery_sqs_heartbeat.pipeline.schema import EVENTS, REJECTS
from celery_sqs_heartbeat.pipeline.storage import closed_segments
from celery_sqs_heartbeat.pipeline.storage.line_frames import read_lines
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from celery_sqs_heartbeat.pipeline.tables.events import events_of
from celery_sqs_heartbeat.pipeline.tables.numbering import folders_with_copies, workers_in
from celery_sqs_heartbeat.pipeline.tables.rejects import rejects_of
from celery_sqs_heartbeat.pipeline.tables.skew import lead
from tests.pipeline.builders import DAY, SECOND, message
from tests.unit.journal.samples import ORIGIN, event_of, fail, own

Line = dict[str, Any]
FIRST = datetime.date(2026, 3, 14)
NEXT = FIRST + datetime.timedelta(days=1)
ONE_DAY = 86_400 * SECOND
START = {
    **ORIGIN.stamp(WORKER_STARTED, ORIGIN.started_at, 1),
    "host": "h1",
    "pid": 7,
    "boot": "b1",
    "node": "celery@h1",
    "pool": "prefork",
    "concurrency": 4,
    "settings": {"threshold": "20"},
    "versions": {"celery": "5.6"},
}


def lines(count: int, wid: str = "w1", **fields: Any) -> list[Line]:
    return [
        {"v": 1, "mono": n, "seq": n, "wid": wid, **message("task-started", n), **fields}
        for n in range(1, count + 1)
    ]


def encoded(rows: Iterable[Line | str]) -> bytes:
    texts = [
        row if isinstance(row, str) else json.dumps(row, separators=(",", ":")) for row in rows
    ]
    return "".join(f"{text}\n" for text in texts).encode()


def frame(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def put(journal: Path, name: str, data: bytes, wid: str = "w1", day: object = FIRST) -> None:
    path = journal / f"dt={day}" / f"worker={wid}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def numbers(spark: SparkSession, journal: Path) -> list[tuple[str, int]]:
    events = events_of(read_lines(spark, str(journal)))
    return sorted((row["wid"], row["seq"]) for row in events.select("wid", "seq").collect())


def rejects(spark: SparkSession, journal: Path) -> set[tuple[str, str, int]]:
    rows = rejects_of(read_lines(spark, str(journal))).collect()
    return {(Path(row["file"]).name, row["reason"], row["lines"]) for row in rows}


TORN = ["seg-3.jsonl.open", *(f"seg-{number}.jsonl.zst" for number in (4, 5, 6, 9, 11, 12, 13))]
WITH_THREE_CORRUPT_LINES = ("seg-8.jsonl.zst", "seg-9.jsonl.zst", "seg-10.jsonl.open")


def test_lines_that_are_no_events_are_counted_by_segment_and_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = lines(2000)
    newer, new_event = good[0] | {"v": 2}, good[1] | {"ev": "unheard-of"}
    whole = frame(encoded(good[:1000]))
    cut = frame(encoded(lines(2000)))
    put(tmp_path, "seg-1.jsonl.zst", whole)
    put(tmp_path, "seg-2.jsonl.zst", frame(encoded([newer, newer, new_event, "what}", "{}"])))
    put(tmp_path, "seg-3.jsonl.open", encoded(good[1000:1100]) + b'{"v":1,"ts":17')
    put(tmp_path, "seg-4.jsonl.zst", cut[: len(cut) // 2])
    put(tmp_path, "seg-5.jsonl.zst", frame(encoded(good[1100:1200])) + cut[: len(cut) // 2])
    put(tmp_path, "seg-6.jsonl.zst", b"no zstd" * 9)
    put(tmp_path, ".seg-7.jsonl.zst", b"not whole yet")
    # Only a segment without its end is torn, whatever else is in it.
    in_the_middle = [good[1200], "this is not json", "[1,2,3]", '{"v":1,"ts":17', good[1201]]
    put(tmp_path, "seg-8.jsonl.zst", frame(encoded(in_the_middle)))
    put(tmp_path, "seg-9.jsonl.zst", frame(encoded(in_the_middle) + b'{"v":1,"ts":17'))
    put(tmp_path, "seg-10.jsonl.open", encoded(in_the_middle))
    # Nothing shows if Spark treats the end of the file as the segment's.
    put(tmp_path, "seg-11.jsonl.zst", b"")
    put(tmp_path, "seg-12.jsonl.zst", frame(b""))
    put(tmp_path, "seg-13.jsonl.zst", frame(encoded(good[1202:1204])) + frame(encoded(good))[:99])
    assert rejects(spark, tmp_path) == {
        *((name, "torn segment", 1) for name in TORN),
        *((name, "corrupt line", 3) for name in WITH_THREE_CORRUPT_LINES),
        ("seg-2.jsonl.zst", "unknown version", 2),
        ("seg-2.jsonl.zst", "unknown event", 1),
        ("seg-2.jsonl.zst", "corrupt line", 2),
    }
    assert {("w1", n) for n in range(1, 1205)} <= set(numbers(spark, tmp_path))
    path = rejects_of(read_lines(spark, str(tmp_path))).select("file").first()
    assert path is not None
    assert path["file"].startswith("dt=2026-03-14/worker=w1/seg-")


#: What a further segment holds, and what progress is reported.
HARMED: dict[str, tuple[bytes | None, list[str]]] = {
    "none": (None, []),
    "a line": (frame(b"what}\n"), ["corrupt line"]),
    "a cut segment": (frame(encoded(lines(300)))[:700], ["torn segment"]),
    "an empty segment": (b"", ["torn segment"]),
    "an empty frame": (frame(b""), ["torn segment"]),
    "a cut frame that is not the first": (
        frame(encoded(lines(3))) + frame(encoded(lines(300)))[:700],
        ["torn segment"],
    ),
}


@pytest.mark.parametrize(
    ("harm", "is_here"),
    [
        *((harm, True) for harm in HARMED),
        *((harm, False) for harm in ("none", "an empty segment", "an empty frame")),
    ],
)
def test_a_job_writes_what_can_be_read_and_counts_the_rest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str, is_here: bool
) -> None:
    """A job first reads a journal strictly. Whatever that finds, its tables are complete."""
    if not is_here:
        monkeypatch.setattr(closed_segments, "here", lambda *_: None)
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    put(journal, "seg-1.jsonl.zst", frame(encoded(lines(300))))
    put(journal, "seg-2.jsonl.zst", frame(encoded(lines(2, "w2"))), "w2")
    harmed, reasons = HARMED[harm]
    if harmed is not None:
        put(journal, "seg-3.jsonl.zst", harmed)
    told: list[str] = []
    warehouse = Warehouse(spark, str(tables))
    write_lines(warehouse, partial(read_lines, spark, str(journal)), Days.of(FIRST), told.append)
    events = pyarrow.parquet.read_table(tables / EVENTS.name, columns=["wid", "seq"]).to_pylist()
    expected = [("w1", n) for n in range(1, 301)] + [("w2", 1), ("w2", 2)]
    assert sorted((row["wid"], row["seq"]) for row in events) == expected
    found = warehouse.read(REJECTS).collect()
    assert [(Path(row["file"]).name, row["reason"], row["lines"]) for row in found] == [
        ("seg-3.jsonl.zst", reason, 1) for reason in reasons
    ]
    assert bool(reasons) == (told != ["events"])


#: By worker: the numbers of its lines, whether it is whole, and whether it has copies.
NUMBERED: dict[str, tuple[list[int], bool, bool]] = {
    "whole": ([1, 2, 3], True, False),
    "mixed": ([7, 5, 6], True, False),
    "copy": ([1, 2, 2, 3], False, True),
    "gap": ([1, 2, 4], False, False),
    "gap-copy": ([1, 2, 2, 4], False, True),
    "gaps": ([1, 3, 3, 5, 3], False, True),
    # Their sums are right.
    "sums": ([1, 1, 4, 4, 5], False, True),
}


@pytest.mark.parametrize(("closed", "reads_again"), [(1, 1), (3, 2)])
def test_a_segment_that_is_closed_while_it_is_read_is_read_again(
    spark: SparkSession, tmp_path: Path, closed: int, reads_again: int
) -> None:
    """The job continues without one only if a segment is closed at each read."""
    journal, days, steps = tmp_path / "journal", Days.of(FIRST), []
    for number, line in enumerate(lines(3)):
        put(journal, f"seg-{number}.jsonl.open", encoded([line]))
    open_ones = sorted(journal.rglob("*.open"))[:closed]

    def read_while_one_is_closed(*args: Any, **kwargs: Any) -> DataFrame:
        frame_of_lines = read_lines(spark, str(journal), *args, **kwargs)
        if open_ones:
            path = open_ones.pop()
            path.with_suffix(".zst").write_bytes(frame(path.read_bytes()))
            path.unlink()
        return frame_of_lines

    warehouse = Warehouse(spark, str(tmp_path / "tables"))
    write_lines(warehouse, read_while_one_is_closed, days, steps.append)
    written = warehouse.read(EVENTS)
    assert sorted(row["seq"] for row in written.collect()) == [1, 2, 3]
    assert steps.count("events again, because a worker closed a segment meanwhile") == reads_again
    assert warehouse.read(REJECTS).isEmpty()


def test_a_worker_is_whole_whose_numbers_are_each_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It has copies if a number is there twice, whatever else is missing."""
    for wid, (numbers_read, _, _) in NUMBERED.items():
        for place, number in enumerate(numbers_read):
            line = lines(1, wid)[0] | {"seq": number}
            put(tmp_path, f"seg-{place}.jsonl.open", encoded([line]), wid)
    all_lines = read_lines(spark, str(tmp_path))
    workers = workers_in(all_lines, lead())
    found = {worker.wid: (worker.is_whole, worker.folders) for worker in workers}
    assert found == {wid: (is_whole, {wid}) for wid, (_, is_whole, _) in NUMBERED.items()}
    with_copies = [wid for wid, (_, _, has_copies) in NUMBERED.items() if has_copies]
    assert sorted(folders_with_copies(all_lines, workers)) == sorted(with_copies)


def test_a_missing_journal_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no journal at .*nowhere"):
        read_lines(spark, str(tmp_path / "nowhere"))


def test_an_empty_journal_has_no_events_and_no_rejects(spark: SparkSession, tmp_path: Path) -> None:
    assert numbers(spark, tmp_path) == []
    assert rejects(spark, tmp_path) == set()


@pytest.mark.parametrize(("seed", "most_folders"), [(0, 1000), (1, 1000), (2, 0)])
def test_shuffling_splitting_and_doubling_lines_changes_nothing(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    most_folders: int,
) -> None:
    """Nor where too many workers have lines twice to name their folders."""
    for module in ("events", "numbering"):
        name = f"celery_sqs_heartbeat.pipeline.tables.{module}.MOST_FOLDERS"
        monkeypatch.setattr(name, most_folders)
    chance = random.Random(seed)
    all_lines = [*lines(60, "w1"), *lines(40, "w2")]
    pieces: dict[tuple[str, str], list[Line]] = {}
    for line in [*all_lines, *chance.sample(all_lines, 30)]:
        name = f"seg-{chance.randrange(3)}.jsonl.{chance.choice(['open', 'zst'])}"
        pieces.setdefault((line["wid"], name), []).append(line)
    for (wid, name), piece in pieces.items():
        chance.shuffle(piece)
        data = encoded(piece)
        put(tmp_path, name, frame(data) if name.endswith("zst") else data, wid)
    expected = sorted((line["wid"], line["seq"]) for line in all_lines)
    assert numbers(spark, tmp_path) == expected


def test_only_the_wanted_days_are_read_with_what_was_late_at_midnight(
    spark: SparkSession, tmp_path: Path
) -> None:
    late, far, before = lines(3)
    put(tmp_path, "seg-1.jsonl.open", encoded([before | {"ts": DAY - 1}, late]))
    put(tmp_path, "seg-2.jsonl.open", encoded([far]) + b'{"v":1,', day=NEXT)
    put(tmp_path, "seg-3.jsonl.open", b"corrupt}\n", day=NEXT + (NEXT - FIRST))
    wanted = read_lines(spark, str(tmp_path), FIRST, FIRST)
    rows = events_of(wanted).select("seq", "dt").collect()
    assert {tuple(row) for row in rows} == {(late["seq"], FIRST), (far["seq"], FIRST)}
    assert rejects_of(wanted).collect() == []


def test_a_wrong_clock_is_set_by_the_times_that_sqs_tells(
    spark: SparkSession, tmp_path: Path
) -> None:
    def receives(wid: str, ahead: int) -> list[Line]:
        rows = lines(9, wid, ev="message-received")
        for row in rows:
            row["first"] = row["ts"] - 20_000
            row["ts"] += ahead
        rows[4]["first"] -= 600 * SECOND
        return rows

    # Receives by a stopped process, and of messages that were received before, do not count.
    not_first = lines(1, "w1", ev="message-received", rc=2, first=0, seq=10, ts=DAY + 9 * SECOND)[0]
    put(tmp_path, "seg-1.jsonl.open", encoded([*receives("w1", 7 * SECOND), not_first]))
    put(tmp_path, "seg-1.jsonl.open", encoded(receives("w2", 30_000)), wid="w2")
    put(tmp_path, "seg-1.jsonl.open", encoded(receives("w3", -ONE_DAY)), wid="w3")
    rows = events_of(read_lines(spark, str(tmp_path))).collect()
    assert {(row["wid"], row["skew_us"]) for row in rows} == {
        ("w1", 7 * SECOND + 20_000),
        ("w2", 0),
        ("w3", -ONE_DAY + 20_000),
    }
    assert {row["dt"] for row in rows} == {FIRST}
    assert {row["ts"] for row in rows if row["wid"] == "w1" and row["seq"] == 1} == {
        DAY + SECOND - 20_000
    }


def test_lines_of_a_worker_are_read_back_field_by_field(
    spark: SparkSession, tmp_path: Path
) -> None:
    written = [
        START,
        *(fields_of(event_of(kind), seq, ORIGIN) for seq, kind in enumerate(EventKind, 2)),
    ]
    writer = SegmentWriter(own(tmp_path), ORIGIN.wid, lambda: 0.0, fail)
    half = len(written) // 2
    writer.write((fields["ts"], line_of(fields)) for fields in written[:half])
    writer.close()
    writer.write((fields["ts"], line_of(fields)) for fields in written[half:])
    found = {
        row["seq"]: row.asDict() for row in events_of(read_lines(spark, str(tmp_path))).collect()
    }
    nothing = dict.fromkeys(EVENTS.names)
    assert found == {
        fields["seq"]: {**nothing, **fields, "skew_us": 0, "dt": FIRST} for fields in written
    }
    assert rejects(spark, tmp_path) == set()
    writer.close()
