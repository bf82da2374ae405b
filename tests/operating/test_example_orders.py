"""How the example project takes an order, and that it keeps no order that it can't send."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from kombu.exceptions import OperationalError
from kombu.transport.SQS.exceptions import AccessDeniedQueueException

from tests.operating.conftest import Studio

CSV = b"region,amount\nnorth,1.50\n"


class Sending:
    """A task whose messages are lost, or kept for the test."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.sent: list[str] = []
        self._fault = fault

    def apply_async(self, args: tuple[str], **options: object) -> None:
        self.sent.extend(args)
        if self._fault:
            raise self._fault


@pytest.fixture
def sending(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> Sending:
    """Take the place of all tasks."""
    task = Sending()
    orders = studio("orders")
    monkeypatch.setattr(orders, "TASKS", dict.fromkeys(orders.TASKS, task))
    return task


@pytest.mark.parametrize(
    "fault",
    [
        OperationalError("Could not connect"),
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1/"),
        ClientError({"Error": {"Code": "ExpiredToken"}}, "SendMessage"),
        AccessDeniedQueueException("not authorized"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_an_order_that_cannot_be_sent_is_taken_back(
    studio: Studio,
    sending: Sending,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
) -> None:
    sending._fault = fault
    with (
        caplog.at_level(logging.WARNING, "studio"),
        pytest.raises(studio("orders").QueueUnreachable, match="nothing was ordered") as caught,
    ):
        studio("orders").place("csv_totals", "", CSV, "orders.csv")
    assert caught.value.status == 503
    assert list(tmp_path.iterdir()) == []
    assert studio("jobs").newest_first() == []
    with pytest.raises(KeyError, match="no job"):  # for a worker that received the message anyway
        studio("jobs").get(*sending.sent)
    (record,) = caplog.records
    assert str(fault) in record.getMessage()
    assert record.exc_info is None


def test_an_order_is_taken_back_when_the_site_ends_while_it_sends(
    studio: Studio, sending: Sending, tmp_path: Path
) -> None:
    sending._fault = SystemExit(1)  # how gunicorn ends a worker whose request takes too long
    with pytest.raises(SystemExit):
        studio("orders").place("thumbnails", "2")
    assert list(tmp_path.iterdir()) == []


def test_a_job_is_there_before_its_message(
    studio: Studio, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = studio("jobs")
    begun: list[str] = []

    def begin(args: tuple[str], **options: object) -> None:
        begun.append(jobs.get(*args).id)

    monkeypatch.setattr(sending, "apply_async", begin)
    job = studio("orders").place("thumbnails", "2")
    assert begun == [job.id]


def test_the_list_leaves_out_a_job_that_is_taken_back_meanwhile(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = studio("jobs")
    kept, gone = jobs.order("thumbnails", 1), jobs.order("thumbnails", 2)
    read = jobs.get

    def get(job_id: str) -> Any:
        if job_id == gone.id:
            gone.withdraw()
        return read(job_id)

    monkeypatch.setattr(jobs, "get", get)
    assert [job.id for job in jobs.newest_first()] == [kept.id]


def test_an_order_needs_only_the_fields_of_its_kind(studio: Studio, sending: Sending) -> None:
    place = studio("orders").place
    assert place("csv_totals", "", CSV).upload.read_bytes() == CSV
    assert place("csv_totals", "900", CSV).size == 1
    assert place("thumbnails", "2", CSV).upload.read_bytes() == b""


@pytest.mark.parametrize("size", ["", "0", "-1", "501", "2.5", "x", "9" * 5000])
def test_a_wrong_size_is_refused(studio: Studio, sending: Sending, size: str) -> None:
    with pytest.raises(studio("orders").Refused, match="size must be 1 to 500") as caught:
        studio("orders").place("thumbnails", size)
    assert caught.value.status == 400
    assert sending.sent == studio("jobs").newest_first() == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("north.csv", "csv_totals, north.csv"),
        ("C:\\orders\\north.csv", "csv_totals, north.csv"),
        ("../orders/north.csv", "csv_totals, north.csv"),
        ("orders-" + "x" * 60 + "-7.csv", f"csv_totals, orders-{'x' * 12}…{'x' * 14}-7.csv"),
        ("north\u202evsc.\ud800\n.csv", "csv_totals, northvsc..csv"),
        ("", "csv_totals"),
    ],
)
def test_totals_are_listed_with_the_name_of_their_file(
    studio: Studio, sending: Sending, name: str, shown: str
) -> None:
    studio("orders").place("csv_totals", "", CSV, name)
    (row,) = studio("pages").table(None)["page"].items
    assert row.title == shown
