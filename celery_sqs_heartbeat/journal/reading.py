"""Reads a journal's lines back.

A journal on S3 is copied into a folder first. Why by boto3:
docs/decisions/2026-11-22-copy-journals-from-s3.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.journal import folder as folders
from celery_sqs_heartbeat.journal.fields import is_whole
from celery_sqs_heartbeat.settings.address import Destination, parse_target

#: Objects that are copied from S3 at the same time.
_THREADS = 16
#: The end of a segment's key on S3, after `dt=`.
_SEGMENT = re.compile(r"(\d{4}-\d\d-\d\d)/worker=[^/]+/seg-[^/]+\.jsonl\.zst")


class Unread:
    """Counts the parts of a journal that could not be read.

    Attributes:
        counts: By kind: a `segment` is damaged, or its end is missing. A `line` of another one, or
            before the damage, is not a line of a journal.
        first: The segment of the first of these.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: Path | None = None

    def note(self, kind: str, segment: Path) -> None:
        """Count a part."""
        self.counts[kind] += 1
        self.first = self.first or segment

    def __str__(self) -> str:
        return " and ".join(counted(self.counts[kind], kind) for kind in sorted(self.counts)[::-1])


def read_journal(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Return the lines of a folder's segments, open and closed, by day, worker and number.

    It works while workers write there. Unfinished and torn lines are left out.
    """
    for _, fields in read_segments(Path(folder), Unread()):
        yield fields


def read_segments(folder: Path, unread: Unread) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each line with its segment, like `read_journal`, and count what is left out.

    Raises:
        OSError: A segment can't be read.
    """
    for path in all_segments(folder):
        for line in _lines(path, unread):
            if (fields := parse(line)) is not None:
                yield path, fields
            elif line.strip():
                unread.note("line", path)


def _lines(path: Path, unread: Unread) -> Iterator[bytes]:
    """Yield the complete lines of a segment."""
    try:
        data = _bytes_of(path)
    except FileNotFoundError:
        # It was closed just now.
        path = folders.closed_path(path)
        data = _bytes_of(path)
    if path.name.endswith(folders.CLOSED_SUFFIX):
        is_complete = yield from folders.unpack(data)
    else:
        *lines, rest = data.split(b"\n")
        yield from (line + b"\n" for line in lines)
        is_complete = not rest
    if not is_complete:
        unread.note("segment", path)


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None if it is torn or not a line of a journal."""
    try:
        return json.loads(line) if is_whole(line) else None
    except ValueError:
        return None


def is_complete(path: Path) -> bool:
    """Return whether a segment is undamaged and has an end.

    Readers such as Spark's take the end of a file within a frame for the end of the segment.

    Raises:
        OSError: It can't be read.
    """
    unread = Unread()
    for _ in _lines(path, unread):
        pass
    return unread.first is None


def _bytes_of(path: Path) -> bytes:
    with folders.opened(path) as file:
        return file.readall()


def closed_segments(folder: Path) -> list[Path]:
    """Return the closed segments, in order."""
    return folders.segments(folder, folders.CLOSED_SUFFIX)


def all_segments(folder: Path) -> list[Path]:
    """Return each segment once, in order: by day, worker and number."""
    # List open ones first, so a segment that is closed meanwhile is in at least one list.
    still_open = folders.segments(folder, folders.OPEN_SUFFIX)
    found = {folders.closed_path(path): path for path in still_open}
    found |= {path: path for path in closed_segments(folder)}
    return sorted(found.values(), key=folders.order_of)


class FetchError(SqsHeartbeatError):
    """A journal can't be copied from S3. The message has the way out."""


@contextlib.contextmanager
def fetched(journal: str, span: Span) -> Iterator[Path]:
    """Provide a folder with a copy of the folders of some days, until the context ends.

    Args:
        journal: `s3://BUCKET/PREFIX`.

    Raises:
        FetchError: There is no journal, S3 refuses access, no folder can be written, or it is not
            a valid URL.
    """
    # Not imported at the top, because boto3 takes a tenth of a second.
    import boto3
    from boto3.exceptions import Boto3Error
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        source = parse_target(journal)
    except ValueError as error:
        raise FetchError(f"the journal {journal!r} {error}") from None
    assert isinstance(source, Destination)
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="sqs-heartbeat-journal-")))
            config = Config(max_pool_connections=_THREADS, retries={"mode": "standard"})
            s3 = boto3.Session().client("s3", config=config)
            keys = list(_keys(s3, source, span))
            if not keys and next(_keys(s3, source, Span()), None) is None:
                raise FetchError(
                    f"there is no journal at {journal!r}: no key there is a segment, such as "
                    "dt=YYYY-MM-DD/worker=ID/seg-1.jsonl.zst. Give the value of "
                    "sqs_heartbeat_journal; a worker uploads its first segment after five minutes"
                )
            with ThreadPoolExecutor(_THREADS) as threads:
                list(threads.map(lambda key: _copy(s3, source, key, folder), keys))
        except (Boto3Error, BotoCoreError, ClientError, ValueError) as error:
            raise FetchError(
                f"the journal {journal!r} can't be read: {error}. boto3 finds region and "
                "credentials in the environment, a profile or a role; they need s3:ListBucket and "
                "s3:GetObject"
            ) from None
        except OSError as error:
            raise FetchError(
                f"the journal {journal!r} can't be copied to {gettempdir()!r}: {error}; set TMPDIR "
                "to use another place for temporary folders"
            ) from None
        yield folder


def _keys(s3: Any, source: Destination, span: Span) -> Iterator[str]:
    """Yield the keys of the segments of these days. S3 lists keys in order."""
    prefix = source.key(Path("dt="))
    # Begin before the first key of that day, and after all keys of the day before.
    start = f"{prefix}{span.first or ''}"
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=source.bucket, Prefix=prefix, StartAfter=start
    )
    for key in pages.search("Contents[].Key"):
        if match := _SEGMENT.fullmatch((key or "").removeprefix(prefix)):
            if span.last and match[1] > str(span.last):
                return
            yield key


def _copy(s3: Any, source: Destination, key: str, folder: Path) -> None:
    from boto3.s3.transfer import TransferConfig

    path = folder / key.removeprefix(source.prefix).lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    s3.download_file(source.bucket, key, str(path), Config=TransferConfig(use_threads=False))
