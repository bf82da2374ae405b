"""Ships closed segments to S3, and removes each once S3 has confirmed it."""

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

from celery_sqs_heartbeat.common.callers import CallerThreads
from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.journal import locks
from celery_sqs_heartbeat.journal.layout import CLOSED_SUFFIX
from celery_sqs_heartbeat.journal.rooted import Root
from celery_sqs_heartbeat.journal.s3 import new_shipping_client
from celery_sqs_heartbeat.journal.spool import Spooled, shrink
from celery_sqs_heartbeat.journal.trouble import Trouble
from celery_sqs_heartbeat.settings.target import Destination

logger = logging.getLogger(__name__)

#: Pauses after failures, in seconds: they double up to the longest.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class Shipper:
    """Ships what is in a spool, whoever closed it. `tick` is for one thread.

    Args:
        limit: Of the spool, in bytes; beyond it the oldest segments go.
        clock: Monotonic seconds.
        jitter: Returns a random number from 0 to 1.

    Attributes:
        shipped: Segments that S3 confirmed.
        lost: Lines that the limit has cost.
        spooled: What waited at the last tick.
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
        self._trouble = Trouble(f"shipping the journal to s3://{destination.bucket}")
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
        """Whether segments are on their way now."""
        return not self._idle.is_set()

    def tick(self) -> None:
        """Keep to the limit, and ship what waits, unless that is under way or to be retried."""
        try:
            self.spooled = shrink(self._root, self._limit)
        except OSError:
            # The writer meets it, too, and logs it.
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
        """Ship what waits, without a pause for failures; wait for that, up to a time."""
        self._wait(until)
        self._retry_at = -math.inf
        self.tick()
        self._wait(until)
        with contextlib.suppress(OSError):
            if left := len(self._root.paths(CLOSED_SUFFIX)):
                logger.warning(
                    "sqs-heartbeat: %s of the journal not shipped yet; the next worker that ships "
                    "from %s does it",
                    counted(left, "segment"),
                    self._root.folder,
                )

    def close(self) -> None:
        """Ship no more: what is left is shipped by whoever starts next on this spool."""
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
                # Another worker has shipped it, or it was the oldest; or it is not ours.
                self._root.note(error)
                return
            stack.callback(locks.close, file)
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
        self._trouble.clear(self.lost)
        self._tidy(path)

    def _tidy(self, path: Path) -> None:
        """Remove the folders of a segment, unless there is more in them."""
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
        self._trouble.note(error)


def _is_taken(file: FileIO) -> bool:
    """Return whether another worker ships the file just now; else it can't from now on."""
    try:
        locks.lock(file)
    except BlockingIOError:
        return True
    except OSError:
        # No locks here: two may ship it, which comes to the same.
        return False
    return False
