"""Uploads closed segments to S3, and removes each once S3 has confirmed it."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, Root
from celery_sqs_heartbeat.journal.segments import lock
from celery_sqs_heartbeat.settings.address import Destination

logger = logging.getLogger(__name__)

#: How often closed segments are uploaded, in seconds.
SHIP_SECONDS = 10.0
#: Size of the segments that may wait for their upload, in bytes. Beyond it, the oldest are removed.
SPOOL_BYTES = 1 << 30
#: Timeout of an upload, in seconds. It must not delay the worker's end for long.
_TIMEOUT = 5.0
#: Pauses after failures, in seconds. They double up to the longest.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
#: Bytes of a segment that are unpacked at once.
_READ_BYTES = 1 << 20


def new_shipping_client(new_session: Callable[[], Any] | None = None) -> Any:
    """Return a client with boto3's own configuration. The broker may be in another account.

    It gives up soon, because the shipper tries again itself.

    Args:
        new_session: Makes the boto3 session; None for boto3's default.
    """
    import boto3
    from botocore.config import Config

    from celery_sqs_heartbeat.sqs.sending import guard

    session = new_session() if new_session is not None else boto3.Session()
    retries = {"total_max_attempts": 1}
    config = Config(connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT, retries=retries)
    client = session.client("s3", config=config)
    guard(client)
    return client


def own_spool(destination: Destination) -> Root:
    """Return the folder of this user's workers on this host for segments that go to a place."""
    path = Path(tempfile.gettempdir()) / f"celery-sqs-heartbeat-journal-{os.geteuid()}"
    below = (socket.gethostname(), destination.bucket, *destination.prefix.split("/"))
    return Root(path, tuple(filter(None, below)), is_private=True)


class OutageLog:
    """One kind of trouble. `doing` names the failing work in the log."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._is_on = False

    def note(self, cause: object) -> None:
        """Note that it does not work."""
        if not self._is_on:
            self._is_on = True
            logger.warning(
                "sqs-heartbeat: %s does not work (%s). Messages are not affected, but some of "
                "their events are not recorded. Check the place that sqs_heartbeat_journal names",
                self._doing,
                cause,
            )

    def clear(self, lost: int) -> None:
        """Note that it works. `lost` is the number of lines lost so far."""
        if self._is_on:
            self._is_on = False
            logger.warning(
                "sqs-heartbeat: %s works again; lines lost so far: %d", self._doing, lost
            )


class Shipper:
    """Uploads all segments of a spool, including those of other workers, on its own thread.

    Attributes:
        shipped: Segments that S3 confirmed.
        lost: Lines of segments that were removed, because too many waited.
        waiting_bytes: Size of the segments that waited at the last look.
    """

    def __init__(self, root: Root, destination: Destination, new_client: Callable[[], Any]) -> None:
        self._root = root
        self._destination = destination
        self._new_client = new_client
        self._client: Any = None
        self._outage = OutageLog(f"the upload of the journal to s3://{destination.bucket}")
        self._failures = 0
        self._is_ending = threading.Event()
        self._thread = threading.Thread(
            target=self._live, name="sqs-heartbeat-journal-s3", daemon=True
        )
        self.shipped = 0
        self.lost = 0
        self.waiting_bytes = 0

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: The system starts none.
        """
        self._thread.start()

    def finish(self, until: float) -> None:
        """Let the thread upload what waits once more, and wait for that until a monotonic time."""
        self._is_ending.set()
        self._thread.join(max(0.0, until - time.monotonic()))
        with contextlib.suppress(OSError):
            if left := len(self._root.segments(CLOSED_SUFFIX)):
                logger.warning(
                    "sqs-heartbeat: %s of the journal not uploaded yet; the next worker that uses "
                    "%s uploads them",
                    counted(left, "segment"),
                    self._root.folder,
                )

    def ship(self) -> float:
        """Upload the segments that wait. Return after how many seconds to do so again."""
        try:
            paths = self._within_limit()
        except OSError:
            # The writer has the same error, and logs it.
            return SHIP_SECONDS
        try:
            for path in paths:
                self._upload(path)
        except Exception as error:
            self._outage.note(error)
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**self._failures)
            self._failures = min(self._failures + 1, 10)
            return pause * (1 + random.random()) / 2
        self._tidy()
        return SHIP_SECONDS

    def _live(self) -> None:
        while not self._is_ending.wait(self.ship()):
            pass
        self.ship()

    def _within_limit(self) -> deque[Path]:
        """Return the segments that wait, the oldest first, after removing some beyond the limit."""
        found: dict[Path, os.stat_result] = {}
        for path in self._root.segments(CLOSED_SUFFIX):
            # Another worker may have uploaded it just now.
            with contextlib.suppress(FileNotFoundError):
                found[path] = (self._root.folder / path).lstat()
        size = sum(status.st_size for status in found.values())
        waiting = deque(sorted(found, key=lambda path: found[path].st_mtime_ns))
        while size > SPOOL_BYTES:
            path = waiting.popleft()
            size -= found[path].st_size
            self._drop(path)
        self.waiting_bytes = size
        return waiting

    def _drop(self, path: Path) -> None:
        try:
            with self._root.opened(*path.parent.parts) as folder, folder.open(path.name) as file:
                folder.remove(path.name)
                self.lost += _lines_in(file)
        except OSError as error:
            self._root.note(error)

    def _upload(self, path: Path) -> None:
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._root.opened(*path.parent.parts))
                file = stack.enter_context(folder.open(path.name))
                # Without locks two workers may upload it, with the same result.
                lock(file)
            except OSError as error:
                # Another worker uploads it or has uploaded it, or it is not ours.
                self._root.note(error)
                return
            self._client = self._client or self._new_client()
            self._client.put_object(
                Bucket=self._destination.bucket,
                Key=self._destination.key(path),
                Body=file.readall(),
            )
            folder.remove(path.name)
        self.shipped += 1
        self._failures = 0
        self._outage.clear(self.lost)

    def _tidy(self) -> None:
        """Remove empty folders, except of the last two days, in which workers begin segments."""
        for day in sorted(self._root.folder.glob("dt=*"))[:-2]:
            for folder in (*day.glob("worker=*"), day):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _lines_in(file: FileIO) -> int:
    """Return how many lines a closed segment has; 0 if it is damaged."""
    import zstandard

    unpacker = zstandard.ZstdDecompressor()
    reader = unpacker.stream_reader(file, read_across_frames=True, closefd=False)
    try:
        return sum(part.count(b"\n") for part in iter(lambda: reader.read(_READ_BYTES), b""))
    except zstandard.ZstdError:
        return 0
