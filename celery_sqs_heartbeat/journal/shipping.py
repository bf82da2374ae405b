"""Uploads closed segments to S3, and removes each once S3 has confirmed it."""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.common.threads import CallerThreads
from celery_sqs_heartbeat.journal.folders import close_file, lock_file
from celery_sqs_heartbeat.journal.layout import CLOSED_SUFFIX
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.spool import Spooled, shrink
from celery_sqs_heartbeat.settings.address import Destination

logger = logging.getLogger(__name__)

#: Timeout of an upload, in seconds. It must not delay the worker's end for long.
_TIMEOUT = 5.0
#: Pauses after failures, in seconds. They double up to the longest.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


def new_s3_client(new_session: Callable[[], Any] | None = None, **config: Any) -> Any:
    """Return a client with boto3's own configuration. The broker may be in another account.

    Args:
        new_session: Makes the boto3 session; None for boto3's default.
        config: Arguments of botocore's `Config`.
    """
    import boto3
    from botocore.config import Config

    session = new_session() if new_session is not None else boto3.Session()
    return session.client("s3", config=Config(**config))


def new_shipping_client(new_session: Callable[[], Any] | None = None) -> Any:
    """Return a client that gives up soon, because the shipper tries again itself."""
    from celery_sqs_heartbeat.sqs.sending import guard

    client = new_s3_client(
        new_session,
        connect_timeout=_TIMEOUT,
        read_timeout=_TIMEOUT,
        retries={"total_max_attempts": 1},
    )
    guard(client)
    return client


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
    """Uploads all segments of a spool, including those of other workers. One thread calls `tick`.

    Args:
        limit: Size of the spool, in bytes. Beyond it, the oldest segments are removed.
        clock: Monotonic seconds.
        jitter: Returns a random number from 0 to 1.

    Attributes:
        shipped: Segments that S3 confirmed.
        lost: Lines lost because of the limit.
        spooled: The segments that waited at the last tick.
    """

    def __init__(
        self,
        root: Root,
        destination: Destination,
        *,
        limit: int,
        clock: Callable[[], float],
        new_client: Callable[[], Any] = new_shipping_client,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._root = root
        self._destination = destination
        self._limit = limit
        self._clock = clock
        self._new_client = new_client
        self._jitter = jitter
        self._threads = CallerThreads(1, "sqs-heartbeat-journal-s3")
        self._client: Any = None
        self._outage = OutageLog(f"the upload of the journal to s3://{destination.bucket}")
        self._idle = threading.Event()
        self._idle.set()
        self._is_closed = False
        self._failures = 0
        self._retry_at = -math.inf
        self.shipped = 0
        self.lost = 0
        self.spooled = Spooled((), 0, 0)

    @property
    def is_busy(self) -> bool:
        """Whether an upload is running."""
        return not self._idle.is_set()

    def tick(self) -> None:
        """Apply the limit, and upload, unless an upload is running or must wait after a failure."""
        try:
            self.spooled = shrink(self._root, self._limit)
        except OSError:
            # The writer has the same error, and logs it.
            self.spooled = Spooled((), 0, 0)
        self.lost += self.spooled.lost
        if not self.spooled.paths or self.is_busy or self._clock() < self._retry_at:
            return
        paths = self.spooled.paths
        self._idle.clear()
        try:
            self._threads.submit(lambda: self._ship_all(paths))
        except RuntimeError as error:
            self._idle.set()
            self._fail(error)

    def finish(self, until: float) -> None:
        """Upload without a pause after failures, and wait for the end, up to a time."""
        self._wait(until)
        self._retry_at = -math.inf
        self.tick()
        self._wait(until)
        with contextlib.suppress(OSError):
            if left := len(self._root.paths(CLOSED_SUFFIX)):
                logger.warning(
                    "sqs-heartbeat: %s of the journal not uploaded yet; the next worker that uses "
                    "%s uploads them",
                    counted(left, "segment"),
                    self._root.folder,
                )

    def close(self) -> None:
        """Stop uploading. The next worker that uses this spool uploads the rest."""
        self._is_closed = True
        self._threads.close()

    def _wait(self, until: float) -> None:
        self._idle.wait(max(0.0, until - self._clock()))

    def _ship_all(self, paths: tuple[Path, ...]) -> None:
        try:
            for path in paths:
                if not self._is_closed:
                    self._ship(path)
        except Exception as error:
            self._fail(error)
        finally:
            self._idle.set()

    def _ship(self, path: Path) -> None:
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._root.opened(*path.parent.parts))
                file = folder.open(path.name)
            except OSError as error:
                # Another worker has uploaded it, the limit has removed it, or it is not ours.
                self._root.note(error)
                return
            stack.callback(close_file, file)
            if _is_taken(file):
                return
            if self._client is None:
                self._client = self._new_client()
            self._client.put_object(
                Bucket=self._destination.bucket,
                Key=self._destination.key(path),
                Body=file.readall(),
            )
            with contextlib.suppress(FileNotFoundError):
                folder.remove(path.name)
        self.shipped += 1
        self._failures = 0
        self._outage.clear(self.lost)
        self._tidy(path)

    def _tidy(self, path: Path) -> None:
        """Remove the folders of a segment, if they are empty."""
        day, worker, _ = path.parts
        with contextlib.suppress(OSError):
            with self._root.opened(day) as folder:
                folder.remove_folder(worker)
            with self._root.opened() as folder:
                folder.remove_folder(day)

    def _fail(self, error: Exception) -> None:
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._retry_at = self._clock() + pause * (1 + self._jitter()) / 2
        self._outage.note(error)


def _is_taken(file: FileIO) -> bool:
    """Return whether another worker uploads the file now. If not, lock it for this one."""
    try:
        lock_file(file)
    except BlockingIOError:
        return True
    except OSError:
        # Without locks two workers may upload it, with the same result.
        return False
    return False
