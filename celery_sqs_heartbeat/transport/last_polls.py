"""Reads the polls that are open when a worker ends to their end, so that what they bring goes back.

SQS has a long poll wait for up to 20 s, and what comes meanwhile goes to it, whether or not
anyone reads its answer: up to ten messages, hidden for a whole visibility timeout. We
considered to

- close the connection: SQS may not notice, and delivers into it all the same;
- run the event loop on by hand before the pool is stopped: a soft shutdown sleeps in a signal's
  handler, amid a tick of that loop, and would leave the answer unread for as long;
- make polls with boto3 on threads, always: two to three milliseconds of Python's lock for each.

So a thread takes kombu's curl handles over when the shutdown begins, and the event loop gets
a dummy in their place. Whatever Celery does then, the answer is read when it comes and its
messages are released. Only the worker's very end waits for it. kombu 5.5 has no such handles, nor
has a pool of gevent or eventlet: a poll blocks there, and its answer is read when the signal's
handler is through.
"""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_sending import is_polls
from celery_sqs_heartbeat.transport.uninterrupted_curl import unguarded

try:
    import pycurl
except ImportError:  # See the module.
    pycurl = None

logger = logging.getLogger(__name__)

#: For how long the end of a worker may wait for its last polls, in seconds: as long as the longest
#: that SQS knows (SQS API reference, ReceiveMessage), and a moment to release what it brings.
LAST_POLLS_SECONDS = 22.0
#: How late an answer may be read on a busy machine, in seconds.
_READ_GRACE = 1.5
#: How often the handles are looked at where curl has nothing to wait for, in seconds.
_LOOK_SECONDS = 0.05
#: How long curl waits for something to read, in seconds.
_SELECT_SECONDS = 0.2


class _Dummy:
    """In the place of curl's handles: the event loop's last ticks ask it in vain."""

    def info_read(self) -> tuple[int, list[Any], list[Any]]:
        return 0, [], []

    def socket_all(self) -> tuple[int, int]:
        return 0, 0

    def socket_action(self, *_: Any) -> tuple[int, int]:
        return 0, 0

    def add_handle(self, _: Any) -> None:
        """Send nothing any more."""

    def remove_handle(self, _: Any) -> None:
        """Its owner has done that."""

    def close(self) -> None:
        """Nothing to close."""


class LastPolls:
    """The open polls of one of kombu's clients, read on a thread of their own.

    May be made in a signal's handler, whatever that interrupted. It may have been the writing of
    a log line: so the reading thread logs nothing before it has read and released.
    """

    def __init__(self, client: Any, polls: Iterable[Poll]) -> None:
        now = clock.now()
        # One that was given up is not waited for.
        ends = [poll.ends_at for poll in polls if poll.is_sent and not poll.is_given_up]
        # One whose time is over may be answered, too: a worker without a pool reads late.
        self._ends_at = max([now, *ends])
        self._has_ended = threading.Event()
        self._client = client
        self._multi = None
        if not ends or not hasattr(client, "_multi") or getattr(client, "_closed", False):
            self._has_ended.set()
            return
        client._pop_from_hub()
        client._fds = {}
        client._pending.clear()
        # The event loop closes these handles when it is closed.
        self._curls, client._curls = client._curls, []
        self._multi, client._multi = unguarded(client._multi), _Dummy()
        client._socket_action = client._multi.socket_action
        # `threading` takes locks to start one, and the signal may have interrupted just that.
        _thread.start_new_thread(self._run, ())
        logger.info(
            "sqs-heartbeat: receiving ends; messages that open long polls still return are released"
        )

    def wait(self, limit: float = LAST_POLLS_SECONDS) -> None:
        """Return when they are answered, or after so many seconds at the most."""
        left = self._ends_at + _READ_GRACE - clock.now()
        if not self._has_ended.wait(min(limit, left)) and self._multi is not None:
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
        """Read what there is; return whether there may be more."""
        multi: Any = self._multi
        try:
            # kombu's callbacks would set timers of the event loop.
            multi.setopt(pycurl.M_TIMERFUNCTION, _ignore)
            multi.setopt(pycurl.M_SOCKETFUNCTION, _ignore)
            _, active = multi.perform()
            _, succeeded, failed = multi.info_read()
        except pycurl.error:
            # Curl is at work on the main thread. Rarely so: signals wait for the end of that.
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
    """Take no notice."""
