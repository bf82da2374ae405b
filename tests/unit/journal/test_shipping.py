"""Uploads of segments to a simulated S3, whose failures the test sets."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from botocore.exceptions import ClientError, EndpointConnectionError

from celery_sqs_heartbeat.journal.folders import close_file, lock_file
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.shipping import Shipper
from celery_sqs_heartbeat.journal.spool import shrink
from celery_sqs_heartbeat.settings.address import Destination
from tests.support.waiting import wait_until
from tests.unit.journal.samples import DAY, Clocks, files_in

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


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def shipper(tmp_path: Path, bucket: Bucket, clocks: Clocks) -> Iterator[Shipper]:
    shipper = shipper_of(tmp_path, bucket, clocks)
    yield shipper
    shipper.close()


def shipper_of(folder: Path, bucket: Bucket, clocks: Clocks, limit: int = 1 << 30) -> Shipper:
    return Shipper(
        Root(folder, is_private=True),
        Destination(bucket="b", prefix="journal"),
        limit=limit,
        clock=clocks.clock,
        new_client=lambda: bucket,
        jitter=lambda: 1.0,
    )


def closed(folder: Path, number: int, lines: int = 3, age: int = 0) -> Path:
    path = folder / f"dt={DAY}" / "worker=w" / f"seg-{number}.jsonl.zst"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.compress(b'{"v":1}\n' * lines))
    os.utime(path, (1_000 - age, 1_000 - age))
    return path


def tick(shipper: Shipper) -> None:
    shipper.tick()
    wait_until(lambda: not shipper.is_busy)


def test_closed_segments_are_shipped_then_removed(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    bodies = [closed(tmp_path, number).read_bytes() for number in (1, 2)]
    tick(shipper)
    assert bucket.objects == {
        f"b/journal/dt={DAY}/worker=w/seg-{number}.jsonl.zst": body
        for number, body in enumerate(bodies, 1)
    }
    assert shipper.shipped == 2
    # The folders are removed, too.
    assert list(tmp_path.iterdir()) == []
    tick(shipper)
    assert bucket.calls == 2


def test_no_segment_is_shipped_before_it_is_complete(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    folder = closed(tmp_path, 1).parent
    (folder / "seg-2.jsonl.open").write_bytes(b"")
    (folder / ".seg-2.jsonl.zst").write_bytes(b"")
    tick(shipper)
    assert len(bucket.objects) == 1
    assert len(files_in(tmp_path)) == 2


@pytest.mark.parametrize("fault", [DENIED, DEAD, OSError("reset"), ValueError("anything")])
def test_a_failure_keeps_the_segment_and_is_logged_once(
    fault: Exception,
    tmp_path: Path,
    bucket: Bucket,
    shipper: Shipper,
    clocks: Clocks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in (1, 2):
        closed(tmp_path, number)
    bucket.faults = [fault] * 3
    for pause in (1, 2, 4):
        tick(shipper)
        calls = bucket.calls
        clocks.now += pause - 0.01
        tick(shipper)
        assert bucket.calls == calls
        assert len(files_in(tmp_path)) == 2
        clocks.now += 0.01
    tick(shipper)
    assert len(bucket.objects) == 2
    assert files_in(tmp_path) == []
    told = [record.message for record in caplog.records]
    assert len(told) == 2
    assert "the upload of the journal to s3://b does not work" in told[0]
    assert "the upload of the journal to s3://b works again" in told[1]


def test_pauses_grow_to_a_minute_at_most(
    tmp_path: Path, bucket: Bucket, shipper: Shipper, clocks: Clocks
) -> None:
    closed(tmp_path, 1)
    bucket.faults = [DEAD] * 20
    for _ in range(20):
        tick(shipper)
        clocks.now += 60
    assert bucket.calls == 20


def test_an_unconfirmed_put_is_repeated_to_the_same_key(
    tmp_path: Path, bucket: Bucket, shipper: Shipper, clocks: Clocks
) -> None:
    path = closed(tmp_path, 1)
    body, put = path.read_bytes(), bucket.put_object

    def unanswered(**call: Any) -> None:
        put(**call)
        raise DEAD

    bucket.put_object = unanswered  # type: ignore[method-assign]
    tick(shipper)
    assert path.exists()
    bucket.put_object = put  # type: ignore[method-assign]
    clocks.now += 60
    tick(shipper)
    assert list(bucket.objects.values()) == [body]
    assert files_in(tmp_path) == []


def test_the_next_worker_ships_the_segments_left_behind(
    tmp_path: Path, bucket: Bucket, clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    closed(tmp_path, 1)
    first, second = (shipper_of(tmp_path, bucket, clocks) for _ in range(2))
    bucket.faults = [DEAD]
    first.finish(clocks.now + 60)
    first.close()
    assert "1 segment of the journal not uploaded yet" in caplog.text
    assert str(tmp_path) in caplog.text
    tick(second)
    second.close()
    assert len(bucket.objects) == 1


def test_the_end_does_not_wait_for_a_pause(
    tmp_path: Path, bucket: Bucket, shipper: Shipper, clocks: Clocks
) -> None:
    closed(tmp_path, 1)
    bucket.faults = [DEAD]
    tick(shipper)
    shipper.finish(clocks.now + 60)
    assert shipper.shipped == 1


def test_a_hanging_s3_delays_neither_ticks_nor_the_end(
    tmp_path: Path, bucket: Bucket, shipper: Shipper, clocks: Clocks
) -> None:
    closed(tmp_path, 1)
    bucket.gate.clear()
    shipper.tick()
    wait_until(lambda: bucket.calls)
    shipper.tick()
    shipper.finish(clocks.now)
    shipper.close()
    bucket.gate.set()
    wait_until(lambda: not shipper.is_busy)
    assert bucket.calls == 1


def test_two_workers_do_not_ship_one_segment_at_once(
    tmp_path: Path, bucket: Bucket, shipper: Shipper
) -> None:
    path = closed(tmp_path, 1)
    other = open(path, "rb", buffering=0)  # noqa: SIM115
    lock_file(other)
    tick(shipper)
    assert bucket.calls == 0
    close_file(other)
    tick(shipper)
    assert bucket.calls == 1


def test_without_a_thread_it_is_tried_again(
    tmp_path: Path,
    bucket: Bucket,
    shipper: Shipper,
    clocks: Clocks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    closed(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        tick(shipper)
    clocks.now += 60
    tick(shipper)
    assert shipper.shipped == 1


def test_the_spool_is_bounded_while_s3_is_down(
    tmp_path: Path, bucket: Bucket, clocks: Clocks
) -> None:
    size = closed(tmp_path, 1, age=10).stat().st_size
    shipper = shipper_of(tmp_path, bucket, clocks, limit=2 * size)
    bucket.faults = [DEAD] * 10
    tick(shipper)
    assert (shipper.lost, shipper.spooled.size) == (0, size)
    for number, age in ((2, 30), (3, 20), (4, 5)):
        closed(tmp_path, number, age=age)
    tick(shipper)
    # The segments that were closed first are dropped.
    assert [name[-15:] for name in files_in(tmp_path)] == ["seg-1.jsonl.zst", "seg-4.jsonl.zst"]
    assert (shipper.lost, shipper.spooled.size) == (6, 2 * size)
    shipper.close()


def test_a_damaged_segment_can_be_dropped_too(tmp_path: Path) -> None:
    path = closed(tmp_path, 1)
    path.write_bytes(b"no zstd" * 10)
    assert shrink(Root(tmp_path, is_private=True), 0).lost == 0
    assert files_in(tmp_path) == []
