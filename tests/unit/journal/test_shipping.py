"""Uploads of segments to a simulated S3, whose failures the test sets."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import zstandard
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.journal import shipping
from celery_sqs_heartbeat.journal.shipping import Shipper, own_spool
from celery_sqs_heartbeat.settings.address import Destination
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.journal.samples import DAY, DEAD, Bucket, files_in

DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")
PLACE = Destination(bucket="b", prefix="journal")
KEY = f"dt={DAY}/worker=w/seg-%d.jsonl.zst"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = own_spool(PLACE).folder
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def shipper(spool: Path, bucket: Bucket) -> Shipper:
    return Shipper(PLACE, lambda: bucket)


def closed(spool: Path, number: int, age: int = 0, day: str = DAY) -> bytes:
    """Write a closed segment of three lines, and return its content."""
    path = spool / (KEY % number).replace(DAY, day)
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(zstandard.compress(b'{"v":1}\n' * 3))
    os.utime(path, (1_000 - age, 1_000 - age))
    return path.read_bytes()


def test_complete_segments_are_shipped_then_removed(
    spool: Path, bucket: Bucket, shipper: Shipper
) -> None:
    bodies = {f"b/journal/{KEY % number}": closed(spool, number) for number in (1, 2)}
    others = [spool / (KEY % 3).replace("zst", "open"), spool / (KEY % 4).replace("seg", ".seg")]
    for path in others:
        path.touch()
    shipper.ship()
    assert bucket.objects == bodies
    assert len(files_in(spool)) == len(others)
    shipper.ship()
    assert bucket.calls == 2


def test_the_empty_folders_of_earlier_days_are_removed(spool: Path, shipper: Shipper) -> None:
    days = ("2026-03-11", "2026-03-12", "2026-03-13", DAY)
    for day in days:
        closed(spool, 1, day=day)
    (spool / "dt=2026-03-11" / "worker=w" / "seg-2.jsonl.open").touch()
    shipper.ship()
    assert {path.name for path in spool.iterdir()} == {f"dt={day}" for day in days} - {
        "dt=2026-03-12"
    }


@pytest.mark.parametrize("fault", [DENIED, DEAD, OSError("reset"), ValueError("anything")])
def test_a_failure_keeps_the_segment_and_is_logged_once(
    fault: Exception,
    spool: Path,
    bucket: Bucket,
    shipper: Shipper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed(spool, 1)
    closed(spool, 2)
    bucket.faults = [fault] * 3
    for calls in (1, 2, 3):
        shipper.ship()
        # The rest of them waits, too.
        assert bucket.calls == calls
    assert len(files_in(spool)) == 2
    shipper.ship()
    assert files_in(spool) == []
    first, second = [record.message for record in caplog.records]
    assert "the upload of the journal to s3://b does not work" in first
    assert "the upload of the journal to s3://b works again" in second


def test_an_unconfirmed_put_is_repeated_to_the_same_key(
    spool: Path, bucket: Bucket, shipper: Shipper
) -> None:
    body = closed(spool, 1)
    bucket.is_answering = False
    shipper.ship()
    assert len(files_in(spool)) == 1
    bucket.is_answering = True
    shipper.ship()
    assert list(bucket.objects.values()) == [body]
    assert files_in(spool) == []


def test_what_waits_is_uploaded_repeatedly(
    spool: Path, bucket: Bucket, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "SHIP_SECONDS", 0.01)
    bucket.faults = [DEAD] * 2
    closed(spool, 1)
    shipper.start()
    wait_until(lambda: not files_in(spool))
    closed(spool, 2)
    wait_until(lambda: not files_in(spool))
    shipper.finish(time.monotonic() + PATIENCE)
    assert len(bucket.objects) == 2


@pytest.mark.parametrize("failures", [0, 1])
def test_the_end_waits_for_no_pause_and_reports_what_is_left(
    failures: int,
    spool: Path,
    bucket: Bucket,
    shipper: Shipper,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(shipping, "SHIP_SECONDS", 3600.0)
    closed(spool, 1)
    bucket.faults = [DEAD] * failures
    shipper.start()
    shipper.finish(time.monotonic() + PATIENCE)
    assert len(bucket.objects) == 1 - failures
    left = "1 segment of the journal not uploaded yet; the next worker that uses"
    assert (f"{left} {spool}" in caplog.text) == failures


def test_a_hanging_s3_does_not_delay_the_end(spool: Path, bucket: Bucket, shipper: Shipper) -> None:
    closed(spool, 1)
    bucket.gate.clear()
    shipper.start()
    shipper.finish(time.monotonic())
    bucket.gate.set()
    wait_until(lambda: bucket.objects)
    assert bucket.calls == 1


def test_two_workers_may_ship_one_segment_at_once(
    spool: Path, bucket: Bucket, shipper: Shipper, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        closed(spool, number)
    bucket.before_put = lambda: [path.unlink() for path in spool.rglob("*.zst")]
    shipper.ship()
    # The other one has uploaded and removed both.
    assert bucket.calls == 1
    assert caplog.messages == []


def test_a_segment_that_can_not_be_opened_keeps_no_younger_one_from_its_upload(
    spool: Path, bucket: Bucket, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(spool, 1, age=1)
    body, bad = closed(spool, 2), spool / (KEY % 1)
    real = os.open

    def open_all_but_one(path: Path, *args: int) -> int:
        if path == bad:
            raise PermissionError("refused")
        return real(path, *args)

    monkeypatch.setattr(os, "open", open_all_but_one)
    shipper.ship()
    assert bucket.objects == {f"b/journal/{KEY % 2}": body}
    assert files_in(spool) == [KEY % 1]


def test_the_oldest_segments_are_dropped_while_s3_is_down_and_reported(
    spool: Path,
    bucket: Bucket,
    shipper: Shipper,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    size = len(closed(spool, 1, age=10))
    monkeypatch.setattr(shipping, "SPOOL_BYTES", 2 * size)
    bucket.faults = [DEAD] * 10
    shipper.ship()
    assert (shipper.lost, shipper.waiting_bytes) == (0, size)
    for number, age in ((2, 30), (3, 20), (4, 5)):
        closed(spool, number, age=age)
    (spool / (KEY % 3)).write_bytes(b"x" * size)
    os.utime(spool / (KEY % 3), (1_000 - 20, 1_000 - 20))
    shipper.ship()
    assert files_in(spool) == [KEY % 1, KEY % 4]
    # A damaged segment can be dropped, too, but its lines can't be counted.
    assert (shipper.lost, shipper.waiting_bytes) == (3, 2 * size)
    assert f"wait for S3 in {spool}; lines lost so far: 3" in caplog.text
