"""Copies a journal from S3 into a folder, for code that reads folders.

Only the segments of the requested days are copied. Why it uses boto3:
docs/decisions/2026-11-22-copy-journals-from-s3.md.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX
from celery_sqs_heartbeat.settings.address import Destination, parse_target

#: Objects that are copied at the same time.
_THREADS = 16
#: The key of a segment on S3, relative to its journal's prefix.
_SEGMENT = re.compile(rf"dt=(\d{{4}}-\d\d-\d\d)/worker=[^/]+/seg-[^/]+{re.escape(CLOSED_SUFFIX)}")


class FetchError(SqsHeartbeatError):
    """A journal can't be copied from S3. The message has the way out."""


@contextmanager
def fetched(
    journal: str, first: datetime.date | None, last: datetime.date | None, around: int
) -> Iterator[Path]:
    """Provide a folder with a copy of the journal's days, until the context ends.

    Arguments and errors are the same as for `fetch`.

    Args:
        around: How many days before and after to copy, too. Their folders may have some of the
            lines.
    """
    try:
        copy = TemporaryDirectory(prefix="sqs-heartbeat-journal-")
    except OSError as error:
        raise _no_place(journal, gettempdir(), error) from None
    with copy as folder:
        span = Span(first, last).grown(around)
        fetch(journal, Path(folder), span.first, span.last)
        yield Path(folder)


def fetch(
    journal: str,
    folder: Path,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
    client: Any = None,
) -> int:
    """Copy the segments of the days from first to last, and return how many there were.

    Args:
        journal: `s3://BUCKET/PREFIX`.
        first: The first day; None for the journal's own first.
        last: The last one, likewise.
        client: A client for S3; None for one with boto3's own configuration.

    Raises:
        FetchError: There is no journal, S3 refuses access, the folder can't be written, or it is
            not a valid URL.
    """
    try:
        source = parse_target(journal)
    except ValueError as error:
        raise FetchError(f"the journal {journal!r} {error}") from None
    assert isinstance(source, Destination)
    try:
        config = Config(max_pool_connections=_THREADS, retries={"mode": "standard"})
        s3 = client or boto3.Session().client("s3", config=config)
        keys = list(_keys(s3, source, first, last))
        if not keys and not _is_there(s3, source):
            raise FetchError(
                f"there is no journal at {journal!r}: no key there is a segment, such as "
                "dt=YYYY-MM-DD/worker=ID/seg-1.jsonl.zst. Give the value of sqs_heartbeat_journal; "
                "a worker uploads its first segment after five minutes"
            )
        with ThreadPoolExecutor(_THREADS) as threads:
            for _ in threads.map(lambda key: _copy(s3, source, key, folder), keys):
                pass
    except (Boto3Error, BotoCoreError, ClientError, ValueError) as error:
        raise FetchError(
            f"the journal {journal!r} can't be read: {error}. boto3 finds region and credentials "
            "in the environment, a profile or a role; they need s3:ListBucket and s3:GetObject"
        ) from None
    except OSError as error:
        raise _no_place(journal, str(folder), error) from None
    return len(keys)


def _keys(
    s3: Any, source: Destination, first: datetime.date | None, last: datetime.date | None
) -> Iterator[str]:
    """Yield the keys of the segments of these days. S3 lists keys in order."""
    below = _below(source)
    # Before the first key of that day, and after all keys of the day before.
    start = f"{below}dt={first}" if first else below
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=source.bucket, Prefix=f"{below}dt=", StartAfter=start
    )
    for page in pages:
        for found in page.get("Contents", ()):
            match = _SEGMENT.fullmatch(found["Key"].removeprefix(below))
            if match is None:
                continue
            if last and match[1] > last.isoformat():
                return
            _check_day(match[1], f"s3://{source.bucket}/{found['Key']}")
            yield found["Key"]


def _check_day(day: str, url: str) -> None:
    try:
        datetime.date.fromisoformat(day)
    except ValueError:
        raise FetchError(
            f"{url!r} is in a folder whose name is not a valid day: move it away"
        ) from None


def _is_there(s3: Any, source: Destination) -> bool:
    """Return whether one of the first keys is a segment, of any day."""
    below = _below(source)
    found = s3.list_objects_v2(Bucket=source.bucket, Prefix=f"{below}dt=").get("Contents", ())
    return any(_SEGMENT.fullmatch(each["Key"].removeprefix(below)) for each in found)


def _below(source: Destination) -> str:
    return f"{source.prefix}/" if source.prefix else ""


def _no_place(journal: str, folder: str, error: OSError) -> FetchError:
    return FetchError(
        f"the journal {journal!r} can't be copied to {folder!r}: {error}; set TMPDIR to "
        "use another place for temporary folders"
    )


def _copy(s3: Any, source: Destination, key: str, folder: Path) -> None:
    path = folder / key.removeprefix(source.prefix).lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    s3.download_file(source.bucket, key, str(path), Config=TransferConfig(use_threads=False))
