"""Copies of journals that are on S3."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.exits import DONE, FOUND
from celery_sqs_heartbeat.journal.__main__ import main
from celery_sqs_heartbeat.journal.reading import FetchError, fetched
from tests.pipeline.builders import DAY
from tests.pipeline.journals import Worker, write_all
from tests.support.aws import BUCKET, serving, upload

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


EVERYTHING = Span()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with serving(monkeypatch) as client:
        yield client


def copied(journal: str, span: Span = EVERYTHING) -> dict[str, str]:
    """Return the files of the copy by their paths in it."""
    with fetched(journal, span) as folder:
        files = [path for path in folder.rglob("*") if path.is_file()]
        copies = {str(path.relative_to(folder)): path.read_text() for path in files}
    assert not folder.exists()
    return copies


@pytest.mark.parametrize(
    ("first", "last", "around", "days"),
    [
        (None, None, 0, "13 14 15"),
        (date(2026, 3, 14), None, 0, "14 15"),
        (None, date(2026, 3, 14), 0, "13 14"),
        (date(2026, 3, 16), date(2026, 3, 20), 0, ""),
        (date(2026, 3, 15), date(2026, 3, 15), 1, "14 15"),
        (date.min, date.max, 1, "13 14 15"),
    ],
)
def test_the_segments_of_the_days_are_copied_and_nothing_else(
    s3: Any, first: date | None, last: date | None, around: int, days: str
) -> None:
    for key in (*KEYS, *OTHERS):
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    wanted = [key for key in KEYS if any(f"dt=2026-03-{day}" in key for day in days.split())]
    copies = copied(f"{JOURNAL}/", Span(first, last).grown(around))
    assert copies == {key.removeprefix("prod/eu/"): key for key in wanted}


NO_BUCKET = "'s3://no-bucket/prod' can't be read: .*NoSuchBucket.*boto3 finds region.*s3:ListBucket"
NOTHING = f"there is no journal at 's3://{BUCKET}/typo'.* sqs_heartbeat_journal"


@pytest.mark.parametrize(
    ("journal", "variables", "fault"),
    [
        ("s3://no-bucket/prod", {}, NO_BUCKET),
        ("s3://", {}, "'s3://' must be a folder, or s3://BUCKET/PREFIX"),
        (f"s3://{BUCKET}/typo", {}, NOTHING),
        (
            JOURNAL,
            {"AWS_ENDPOINT_URL_S3": "localhost:4566"},
            r"can't be read: .*localhost:4566.* boto3 finds region",
        ),
        (
            JOURNAL,
            {
                "AWS_ACCESS_KEY_ID": "",
                "AWS_SECRET_ACCESS_KEY": "",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_SHARED_CREDENTIALS_FILE": "none",
            },
            "Unable to locate credentials.*boto3 finds region",
        ),
    ],
)
def test_a_journal_that_s3_does_not_return_is_an_error(
    s3: Any,
    monkeypatch: pytest.MonkeyPatch,
    journal: str,
    variables: dict[str, str],
    fault: str,
) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEYS[0], Body=b"")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FetchError, match=fault):
        copied(journal)


def test_a_folder_for_temporary_files_that_is_missing_is_an_error(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket=BUCKET, Key=KEYS[0], Body=b"")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(FetchError, match=r"can't be copied to '.*': .*set TMPDIR to use another"):
        copied(JOURNAL)


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
