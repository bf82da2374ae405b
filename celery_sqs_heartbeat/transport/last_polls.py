"""Reads the polls that are still open when a worker ends, and releases the messages they return.

At SQS, a long poll waits for up to 20 s. Messages that arrive meanwhile go to it, whether or not
anyone reads the answer: up to ten messages, hidden for a whole visibility timeout. We considered
these alternatives:

- Close the connection. SQS may not notice, and still delivers into it.
- Run the event loop by hand before the pool is stopped. But a soft shutdown sleeps in a signal
  handler, within a tick of that loop, and would leave the answer unread for as long.
- Always poll with boto3 on threads. Each poll would hold Python's lock for two to three
  milliseconds.

Instead, a thread takes over kombu's curl handles when the shutdown begins, and the event loop gets
a dummy in their place. Whatever Celery does then, the thread reads the answer when it arrives, and
its messages are released. Only the very end of the worker waits for it. kombu 5.5 has no such
handles, and neither has a gevent or eventlet pool. Polls block there, and the answer is read when
the signal handler has returned, or by the greenlet of an additional poll (`PollThreads`).
"""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.poll import Poll, awaited_until
from celery_sqs_heartbeat.transport.poll_sending import is_polls
from celery_sqs_heartbeat.transport.uninterrupted_curl import unguarded

try:
    import pycurl
except ImportError:  # See the module's docstring.
    pycurl = None

logger = logging.getLogger(__name__)

#: How often the handles are checked while curl has nothing to wait for, in seconds.
_LOOK_SECONDS = 0.05
#: How long curl waits for something to read, in seconds.
_SELECT_SECONDS = 0.2


class _Dummy:
    """Takes the place of curl's handles, and returns nothing to the event loop's last ticks."""

    def info_read(self) -> tuple[int, list[Any], list[Any]]:
        return 0, [], []

    def socket_all(self) -> tuple[int, int]:
        return 0, 0

    def socket_action(self, *_: Any) -> tuple[int, int]:
        return 0, 0

    def add_handle(self, _: Any) -> None:
        """Send nothing."""

    def remove_handle(self, _: Any) -> None:
        """The handle's owner has removed it already."""

    def close(self) -> None:
        """Nothing to close."""


class LastPolls:
    """The open polls of one of kombu's clients, read on their own thread.

    It can be made in a signal handler, whatever that interrupted. If the signal interrupted the
    writing of a log line, the log's lock is held. So the reading thread logs nothing before it has
    read the answers and released the messages.
    """

    def __init__(self, client: Any, polls: Iterable[Poll]) -> None:
        # The worker does not wait for polls that it has given up.
        self._polls = [poll for poll in polls if poll.is_sent and not poll.is_given_up]
        self._has_ended = threading.Event()
        self._client = client
        self._multi = None
        if not self._polls or not hasattr(client, "_multi") or getattr(client, "_closed", False):
            self._has_ended.set()
            return
        client._pop_from_hub()
        client._fds = {}
        client._pending.clear()
        # The event loop closes these handles when it is closed.
        self._curls, client._curls = client._curls, []
        self._multi, client._multi = unguarded(client._multi), _Dummy()
        client._socket_action = client._multi.socket_action
        # `threading` takes locks to start a thread, and the signal may have come while one is held.
        _thread.start_new_thread(self._run, ())
        logger.info(
            "sqs-heartbeat: receiving ends; messages that open long polls still return are released"
        )

    def wait(self) -> None:
        """Return when the polls are answered, or are no longer awaited."""
        now = clock.now()
        left = awaited_until(self._polls, now) - now
        if not self._has_ended.wait(left) and self._multi is not None:
            logger.warning(
                "sqs-heartbeat: a poll that was open when the shutdown began is not answered "
                "yet: messages that it returns become visible again after their visibility timeout"
            )

    def _run(self) -> None:
        try:
            while self._read():
                pass
        except Exception:
            logger.exception("sqs-heartbeat: reading the last polls failed")
        finally:
            self._has_ended.set()

    def _read(self) -> bool:
        """Read the answers that have arrived. Return whether there may be more."""
        multi: Any = self._multi
        try:
            # kombu's callbacks would set timers on the event loop.
            multi.setopt(pycurl.M_TIMERFUNCTION, _ignore)
            multi.setopt(pycurl.M_SOCKETFUNCTION, _ignore)
            _, active = multi.perform()
            _, succeeded, failed = multi.info_read()
        except pycurl.error:
            # curl is working on the main thread. This is rare, because signals wait until it ends.
            time.sleep(_LOOK_SECONDS)
            return True
        for curl, *error in [*((curl,) for curl in succeeded), *failed]:
            multi.remove_handle(curl)
            if is_polls(curl.info["request"]):
                self._take(curl, error)
        if active and multi.select(_SELECT_SECONDS) < 0:
            time.sleep(_LOOK_SECONDS)
        return bool(active)

    def _take(self, curl: Any, error: list[Any]) -> None:
        try:
            self._client._process(curl, *error)
        except Exception:
            logger.exception(
                "sqs-heartbeat: messages that the last long poll returned can't be released"
            )


def _ignore(*_: Any) -> None:
    """Do nothing."""
