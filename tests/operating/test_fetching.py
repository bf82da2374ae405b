"""Copies of journals that are on S3."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.common.exits import DONE, FOUND
from celery_sqs_heartbeat.journal.__main__ import main
from celery_sqs_heartbeat.journal.fetching import FetchError, fetch, fetched
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, write_all
from tests.support.s3 import BUCKET, serving, upload

JOURNAL = f"s3://{BUCKET}/prod/eu"
KEYS = [
    *(
        f"prod/eu/dt=2026-03-{day}/worker=w{n}/seg-1.jsonl.zst"
        for day in (13, 14, 15)
        for n in (1, 2)
    ),
    "prod/eu/dt=2026-03-14/worker=w1/seg-2.jsonl.zst",
]
OTHERS = [
    "prod/eu/README",
    "prod/eu/dt=2026-03-14/worker=w1/notes.txt",
    "prod/eu/dt=2026-03-14/worker=w1/more/seg-1.jsonl.zst",
    "prod/eu/dt=latest/worker=w1/seg-1.jsonl.zst",
    "prod/eu-west/dt=2026-03-14/worker=w1/seg-1.jsonl.zst",
    "dt=2026-03-14/worker=w9/seg-1.jsonl.zst",
]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with serving(monkeypatch) as client:
        yield client


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [
        (None, None, "13 14 15"),
        (date(2026, 3, 14), None, "14 15"),
        (None, date(2026, 3, 14), "13 14"),
        (date(2026, 3, 14), date(2026, 3, 14), "14"),
        (date(2026, 3, 16), date(2026, 3, 20), ""),
        (date(2025, 1, 1), date(2026, 3, 13), "13"),
    ],
)
def test_the_segments_of_the_days_are_copied_and_nothing_else(
    s3: Any, tmp_path: Path, first: date | None, last: date | None, days: str
) -> None:
    for key in (*KEYS, *OTHERS):
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    count = fetch(f"{JOURNAL}/", tmp_path, first, last)
    wanted = [key for key in KEYS if any(f"dt=2026-03-{day}" in key for day in days.split())]
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.read_text() for path in found) == sorted(wanted)
    assert {f"prod/eu/{path.relative_to(tmp_path)}" for path in found} == set(wanted)
    assert count == len(wanted)


def test_a_journal_may_be_a_whole_bucket(s3: Any, tmp_path: Path) -> None:
    for key in OTHERS:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    assert fetch(f"s3://{BUCKET}", tmp_path) == 1
    assert (tmp_path / "dt=2026-03-14/worker=w9/seg-1.jsonl.zst").exists()


@pytest.mark.parametrize(
    ("journal", "fault"),
    [
        (
            "s3://no-bucket/prod",
            "'s3://no-bucket/prod' can't be read: .*NoSuchBucket.*s3:ListBucket",
        ),
        ("s3://", "'s3://' must be a folder, or s3://BUCKET/PREFIX"),
        (
            f"s3://{BUCKET}/typo",
            f"there is no journal at 's3://{BUCKET}/typo'.* sqs_heartbeat_journal",
        ),
    ],
)
def test_a_journal_that_s3_does_not_return_is_an_error(
    s3: Any, tmp_path: Path, journal: str, fault: str
) -> None:
    with pytest.raises(FetchError, match=fault):
        fetch(journal, tmp_path)


def test_a_folder_of_no_day_is_named_by_its_key(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEYS[0].replace("03-13", "02-31"), Body=b"")
    with pytest.raises(FetchError, match=f"'{JOURNAL}/dt=2026-02-31/.*' .* not a valid day: move"):
        fetch(JOURNAL, tmp_path)


def test_a_wrong_setting_of_boto3_is_an_error(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "localhost:4566")
    with pytest.raises(FetchError, match=r"can't be read: .*localhost:4566.* boto3 finds region"):
        fetch(JOURNAL, tmp_path)


def test_a_missing_place_for_temporary_folders_is_an_error(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with (
        pytest.raises(
            FetchError, match=r"can't be copied to '.*none': .*set TMPDIR to use another"
        ),
        fetched(JOURNAL, None, None, 0),
    ):
        pass


def test_missing_credentials_are_an_error(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(FetchError, match=r"Unable to locate credentials.*boto3 finds region"):
        fetch(JOURNAL, tmp_path)


def test_an_object_that_is_gone_when_its_turn_comes_is_an_error(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEYS[0], Body=b"")

    class Racing:
        """Lists objects that are removed before their download."""

        get_paginator = s3.get_paginator

        def download_file(self, bucket: str, key: str, *rest: Any, **options: Any) -> None:
            s3.delete_object(Bucket=bucket, Key=key)
            s3.download_file(bucket, key, *rest, **options)

    with pytest.raises(FetchError, match=r"can't be read: .*404"):
        fetch(JOURNAL, tmp_path, client=Racing())


def test_a_full_folder_is_an_error(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEYS[0], Body=b"")
    (tmp_path / "full").touch()
    with pytest.raises(
        FetchError, match=r"can't be copied to '.*full': .*set TMPDIR to use another"
    ):
        fetch(JOURNAL, tmp_path / "full")


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [
        (date(2026, 3, 15), date(2026, 3, 15), {"14", "15"}),
        (date.min, date.max, {"13", "14", "15"}),
    ],
)
def test_the_days_around_are_copied_too(s3: Any, first: date, last: date, days: set[str]) -> None:
    for key in KEYS:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    with fetched(JOURNAL, first, last, 1) as folder:
        assert {path.name[-2:] for path in folder.iterdir()} == days
    assert not folder.exists()


def test_a_journal_on_s3_is_printed_as_if_it_were_a_folder(s3: Any, tmp_path: Path) -> None:
    worker = Worker("w1", DAY)
    worker.attempt("m1", 1, DAY, 20, "message-deleted")
    journal = write_all(tmp_path / "journal", [worker])
    upload(journal, "prod/eu")

    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == (DONE if result.stdout else FOUND), result.output
        return result.stdout

    assert "message-deleted" in printed(JOURNAL, "--from", "2026-03-14")
    assert printed(JOURNAL) == printed(str(journal))
    assert printed(JOURNAL, "--from", "2026-03-15") == ""


def test_the_command_ends_with_the_error_of_s3(s3: Any) -> None:
    result = CliRunner().invoke(main, ["s3://no-bucket/prod"])
    assert result.exit_code == 2
    assert "s3:ListBucket" in result.output
