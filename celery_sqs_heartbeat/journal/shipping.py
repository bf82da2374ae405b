"""Uploads closed segments to S3, and removes each once S3 has confirmed it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.journal.folder import CLOSED_SUFFIX, RefusedError, Root, unpack
from celery_sqs_heartbeat.settings.address import Destination

logger = logging.getLogger(__name__)

#: How often closed segments are uploaded, in seconds. After a failure, they wait until then.
SHIP_SECONDS = 10.0
#: Size of the segments that may wait for their upload, in bytes. Beyond it, the oldest are removed.
SPOOL_BYTES = 1 << 30
#: Timeout of an upload, in seconds. It must not delay the worker's end for long.
_TIMEOUT = 5.0


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
    user = f"celery-sqs-heartbeat-journal-{os.geteuid()}"
    below = (user, socket.gethostname(), destination.bucket, *destination.prefix.split("/"))
    return Root(Path(tempfile.gettempdir()), tuple(filter(None, below)))


class OutageLog:
    """One kind of trouble. `doing` names the failing work in the log."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._is_on = False

    def note(self, cause: object, *, is_bug: bool = False) -> None:
        """Note that it does not work. Of a bug, the log gets the traceback, too."""
        if not self._is_on:
            self._is_on = True
            logger.warning(
                "sqs-heartbeat: %s does not work (%s). Messages are not affected, but some of "
                "their events are not recorded. Check the place that sqs_heartbeat_journal names",
                *(self._doing, cause),
                exc_info=is_bug,
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
        root: The spool.
        lost: Lines of segments that were removed, because too many waited.
        waiting_bytes: Size of the segments that wait.
    """

    def __init__(self, destination: Destination, new_client: Callable[[], Any]) -> None:
        self.root = own_spool(destination)
        self._destination = destination
        self._new_client = new_client
        self._client: Any = None
        self._outage = OutageLog(f"the upload of the journal to s3://{destination.bucket}")
        self._is_ending = threading.Event()
        self._thread = threading.Thread(
            target=self._live, name="sqs-heartbeat-journal-s3", daemon=True
        )
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
            if left := len(self.root.segments(CLOSED_SUFFIX)):
                logger.warning(
                    "sqs-heartbeat: %s of the journal not uploaded yet; the next worker that uses "
                    "%s uploads them",
                    *(counted(left, "segment"), self.root.folder),
                )

    def ship(self) -> None:
        """Upload the segments that wait, the oldest first, after removing some beyond the limit."""
        try:
            waiting = []
            for path in self.root.segments(CLOSED_SUFFIX):
                # Another worker may have uploaded it just now.
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    waiting.append((status.st_mtime_ns, status.st_size, path))
            self.waiting_bytes = sum(size for _, size, _ in waiting)
            for _, size, path in sorted(waiting):
                try:
                    file = self.root.open_own(path)
                except OSError:
                    # It is not a segment of ours, or another worker has uploaded it just now. It
                    # must not keep the younger ones from being uploaded.
                    continue
                with file:
                    data = file.readall()
                if self.waiting_bytes > SPOOL_BYTES:
                    self._drop(path, data)
                else:
                    self._upload(path, data)
                path.unlink(missing_ok=True)
                self.waiting_bytes -= size
        except RefusedError:
            # The writer has the same error, and logs it.
            return
        except Exception as error:
            self._outage.note(error)
        else:
            self._remove_empty_folders()

    def _live(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_ending.wait(SHIP_SECONDS)
            self.ship()

    def _upload(self, path: Path, data: bytes) -> None:
        self._client = self._client or self._new_client()
        self._client.put_object(
            Bucket=self._destination.bucket,
            Key=self._destination.key(path.relative_to(self.root.folder)),
            Body=data,
        )
        self._outage.clear(self.lost)

    def _drop(self, path: Path, data: bytes) -> None:
        self.lost += sum(1 for _ in unpack(data))
        logger.warning(
            "sqs-heartbeat: removed the oldest segment of the journal, %s, because more than %d MB "
            "wait for S3 in %s; lines lost so far: %d",
            *(path.name, SPOOL_BYTES >> 20, self.root.folder, self.lost),
        )

    def _remove_empty_folders(self) -> None:
        """Remove empty folders, except of the last two days, in which workers begin segments."""
        for day in sorted(self.root.folder.glob("dt=*"))[:-2]:
            for folder in (*day.glob("worker=*"), day):
                with contextlib.suppress(OSError):
                    folder.rmdir()
