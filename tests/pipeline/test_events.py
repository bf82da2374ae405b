from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.pipeline import jobs
from celery_sqs_heartbeat.pipeline.jobs import write_lines
from celery_sqs_heartbeat.pipeline.lines import read_lines
from celery_sqs_heartbeat.pipeline.schema import EVENTS
from celery_sqs_heartbeat.pipeline.tables import events
from celery_sqs_heartbeat.pipeline.tables.events import events_of, rejects_of
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse
from tests.pipeline.builders import DAY, SECOND, message

pytestmark = pytest.mark.thorough

Line = dict[str, Any]
FIRST = datetime.date(2026, 3, 14)
NEXT = FIRST + datetime.timedelta(days=1)
ONE_DAY = 86_400 * SECOND


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


def test_a_segment_that_is_closed_while_it_is_read_is_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, told = tmp_path / "journal", list[str]()
    for number, line in enumerate(lines(3)):
        put(journal, f"seg-{number}.jsonl.open", encoded([line]))
    open_ones = sorted(journal.rglob("*.open"))[:2]

    def read_while_one_is_closed(*args: Any) -> DataFrame:
        found = read_lines(*args)
        if open_ones:
            path = open_ones.pop()
            path.with_suffix(".zst").write_bytes(frame(path.read_bytes()))
            path.unlink()
        return found

    monkeypatch.setattr(jobs, "read_lines", read_while_one_is_closed)
    tables = Warehouse(spark, str(tmp_path / "tables"))
    write_lines(spark, str(journal), tables, Days.of(FIRST), told.append)
    assert sorted(row["seq"] for row in tables.read(EVENTS).collect()) == [1, 2, 3]
    assert sum("closed a segment meanwhile" in each for each in told) == 2


@pytest.mark.parametrize("most_folders", [1000, 0])
def test_shuffling_splitting_and_doubling_lines_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_folders: int
) -> None:
    """Nor where too many workers have lines twice to name their folders."""
    monkeypatch.setattr(events, "MOST_FOLDERS", most_folders)
    chance = random.Random(most_folders)
    # One worker lacks as many lines as it has twice.
    odd = [line for line in lines(6, "w3") if line["seq"] not in (2, 4)]
    all_lines = [*lines(60, "w1"), *lines(40, "w2"), *odd]
    pieces: dict[tuple[str, str], list[Line]] = {}
    for line in [*all_lines, *chance.sample(all_lines, 30), odd[1], odd[3]]:
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
