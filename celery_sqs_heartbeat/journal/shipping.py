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
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, Root, lock, open_own
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
            waiting = self._within_limit()
        except OSError:
            # The writer has the same error, and logs it.
            return SHIP_SECONDS
        try:
            for file in waiting:
                self._upload(file)
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

    def _within_limit(self) -> list[Path]:
        """Return the segments that wait, the oldest first, after removing some beyond the limit."""
        found, lost = [], self.lost
        for file in self._root.segments(CLOSED_SUFFIX):
            # Another worker may have uploaded it just now.
            with contextlib.suppress(FileNotFoundError):
                status = (self._root.folder / file).lstat()
                found.append((status.st_mtime_ns, status.st_size, file))
        found.sort()
        self.waiting_bytes = sum(size for _, size, _ in found)
        while self.waiting_bytes > SPOOL_BYTES:
            _, size, file = found.pop(0)
            self.waiting_bytes -= size
            self._drop(file)
        if self.lost > lost:
            logger.warning(
                "sqs-heartbeat: removed the oldest segments of the journal, because more than "
                "%d MB waited for S3 in %s; lines lost so far: %d",
                *(SPOOL_BYTES >> 20, self._root.folder, self.lost),
            )
        return [file for _, _, file in found]

    def _drop(self, file: Path) -> None:
        try:
            place = self._root.located(file)
            with open_own(place) as segment:
                place.unlink()
                self.lost += _lines_in(segment)
        except OSError as error:
            self._root.note(error)

    def _upload(self, file: Path) -> None:
        try:
            place = self._root.located(file)
            segment = open_own(place)
        except OSError as error:
            # Another worker has uploaded it, or it is not ours.
            self._root.note(error)
            return
        # If another worker has locked it, that one uploads it.
        with segment, contextlib.suppress(BlockingIOError):
            lock(segment)
            self._client = self._client or self._new_client()
            self._client.put_object(
                Bucket=self._destination.bucket,
                Key=self._destination.key(file),
                Body=segment.readall(),
            )
            place.unlink(missing_ok=True)
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

    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    try:
        return sum(part.count(b"\n") for part in iter(lambda: reader.read(_READ_BYTES), b""))
    except zstandard.ZstdError:
        return 0
