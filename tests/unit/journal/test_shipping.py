"""Uploads of segments to a simulated S3, whose failures the test sets."""

from __future__ import annotations

import os
import threading
import time
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import zstandard
from botocore.exceptions import ClientError, EndpointConnectionError

from celery_sqs_heartbeat.journal import shipping
from celery_sqs_heartbeat.journal.folder import Root
from celery_sqs_heartbeat.journal.segments import lock
from celery_sqs_heartbeat.journal.shipping import SHIP_SECONDS, Shipper
from celery_sqs_heartbeat.settings.address import Destination
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.journal.samples import DAY, files_in

DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")
DEAD = EndpointConnectionError(endpoint_url="https://s3")


class Bucket:
    """The part of an S3 client that a shipper uses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: list[Exception | None] = []
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self.calls += 1
        self.gate.wait()
        fault = self.faults.pop(0) if self.faults else None
        if fault:
            raise fault
        self.objects[f"{Bucket}/{Key}"] = Body


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture(autouse=True)
def longest_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 1.0)


@pytest.fixture
def shipper(tmp_path: Path, bucket: Bucket) -> Shipper:
    return shipper_of(tmp_path, bucket)


def shipper_of(folder: Path, bucket: Bucket) -> Shipper:
    destination = Destination(bucket="b", prefix="journal")
    return Shipper(Root(folder, is_private=True), destination, lambda: bucket)


def later() -> float:
    return time.monotonic() + PATIENCE


def closed(folder: Path, number: int, lines: int = 3, age: int = 0, day: str = DAY) -> Path:
    path = folder / f"dt={day}" / "worker=w" / f"seg-{number}.jsonl.zst"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.compress(b'{"v":1}\n' * lines))
    os.utime(path, (1_000 - age, 1_000 - age))
    return path


def test_closed_segments_are_shipped_then_removed(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    bodies = [closed(tmp_path, number).read_bytes() for number in (1, 2)]
    assert shipper.ship() == SHIP_SECONDS
    assert bucket.objects == {
        f"b/journal/dt={DAY}/worker=w/seg-{number}.jsonl.zst": body
        for number, body in enumerate(bodies, 1)
    }
    assert shipper.shipped == 2
    assert files_in(tmp_path) == []
    shipper.ship()
    assert bucket.calls == 2


def test_the_empty_folders_of_earlier_days_are_removed(tmp_path: Path, shipper: Shipper) -> None:
    days = ("2026-03-11", "2026-03-12", "2026-03-13", DAY)
    for day in days:
        closed(tmp_path, 1, day=day)
    left = tmp_path / "dt=2026-03-11" / "worker=w" / "seg-2.jsonl.open"
    left.write_bytes(b"")
    shipper.ship()
    kept = [f"dt={day}" for day in days if day != "2026-03-12"]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    assert left.exists()


def test_no_segment_is_shipped_before_it_is_complete(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    folder = closed(tmp_path, 1).parent
    (folder / "seg-2.jsonl.open").write_bytes(b"")
    (folder / ".seg-2.jsonl.zst").write_bytes(b"")
    shipper.ship()
    assert len(bucket.objects) == 1
    assert len(files_in(tmp_path)) == 2


@pytest.mark.parametrize("fault", [DENIED, DEAD, OSError("reset"), ValueError("anything")])
def test_a_failure_keeps_the_segment_and_is_logged_once(
    fault: Exception,
    tmp_path: Path,
    bucket: Bucket,
    shipper: Shipper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in (1, 2):
        closed(tmp_path, number)
    bucket.faults = [fault] * 3
    assert [shipper.ship() for _ in range(3)] == [1, 2, 4]
    assert bucket.calls == 3
    assert len(files_in(tmp_path)) == 2
    assert shipper.ship() == SHIP_SECONDS
    assert len(bucket.objects) == 2
    assert files_in(tmp_path) == []
    logged = [record.message for record in caplog.records]
    assert len(logged) == 2
    assert "the upload of the journal to s3://b does not work" in logged[0]
    assert "the upload of the journal to s3://b works again" in logged[1]


def test_pauses_grow_to_a_minute_at_most(tmp_path: Path, bucket: Bucket, shipper: Shipper) -> None:
    closed(tmp_path, 1)
    bucket.faults = [DEAD] * 20
    assert [shipper.ship() for _ in range(20)][5:] == [32, *[60] * 14]
    assert shipper.ship() == SHIP_SECONDS
    closed(tmp_path, 2)
    bucket.faults = [DEAD]
    assert shipper.ship() == 1


def test_an_unconfirmed_put_is_repeated_to_the_same_key(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    path = closed(tmp_path, 1)
    body, put = path.read_bytes(), bucket.put_object

    def unanswered(**call: Any) -> None:
        put(**call)
        raise DEAD

    bucket.put_object = unanswered  # type: ignore[method-assign]
    shipper.ship()
    assert path.exists()
    bucket.put_object = put  # type: ignore[method-assign]
    shipper.ship()
    assert list(bucket.objects.values()) == [body]
    assert files_in(tmp_path) == []


def test_the_next_worker_ships_the_segments_left_behind(
    tmp_path: Path, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    closed(tmp_path, 1)
    first, second = (shipper_of(tmp_path, bucket) for _ in range(2))
    bucket.faults = [DEAD] * 2
    first.start()
    first.finish(later())
    assert "1 segment of the journal not uploaded yet" in caplog.text
    assert str(tmp_path) in caplog.text
    second.ship()
    assert len(bucket.objects) == 1


def test_the_end_does_not_wait_for_a_pause(
    tmp_path: Path, bucket: Bucket, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "_FIRST_PAUSE", 3600.0)
    monkeypatch.setattr(shipping, "_LONGEST_PAUSE", 3600.0)
    closed(tmp_path, 1)
    bucket.faults = [DEAD]
    shipper.start()
    wait_until(lambda: bucket.calls)
    shipper.finish(later())
    assert shipper.shipped == 1


def test_a_hanging_s3_does_not_delay_the_end(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    closed(tmp_path, 1)
    bucket.gate.clear()
    shipper.start()
    wait_until(lambda: bucket.calls)
    shipper.finish(time.monotonic())
    bucket.gate.set()
    wait_until(lambda: shipper.shipped)
    assert bucket.calls == 1


def test_two_workers_do_not_ship_one_segment_at_once(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    path = closed(tmp_path, 1)
    with FileIO(path) as other:
        lock(other)
        shipper.ship()
        assert bucket.calls == 0
    shipper.ship()
    assert bucket.calls == 1


def test_the_spool_is_bounded_while_s3_is_down(
    tmp_path: Path, bucket: Bucket, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = closed(tmp_path, 1, age=10).stat().st_size
    monkeypatch.setattr(shipping, "SPOOL_BYTES", 2 * size)
    bucket.faults = [DEAD] * 10
    shipper.ship()
    assert (shipper.lost, shipper.waiting_bytes) == (0, size)
    for number, age in ((2, 30), (3, 20), (4, 5)):
        closed(tmp_path, number, age=age)
    shipper.ship()
    # The segments that were closed first are dropped.
    assert [name[-15:] for name in files_in(tmp_path)] == ["seg-1.jsonl.zst", "seg-4.jsonl.zst"]
    assert (shipper.lost, shipper.waiting_bytes) == (6, 2 * size)


def test_a_damaged_segment_can_be_dropped_too(
    tmp_path: Path, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "SPOOL_BYTES", 0)
    closed(tmp_path, 1).write_bytes(b"no zstd" * 10)
    shipper.ship()
    assert (shipper.lost, files_in(tmp_path)) == (0, [])
