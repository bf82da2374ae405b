"""Greenlets that run apart from the tasks' greenlets."""

from __future__ import annotations

from collections.abc import Callable

from celery_sqs_heartbeat.common import native
from celery_sqs_heartbeat.green.inbox import Inbox

#: How long its last jobs are waited for, in seconds: calls fail by then (`MAX_TIMEOUT`).
_END_SECONDS = 5.0


class HubThread:
    """A thread of the system's whose greenlets run though no task yields."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = native.RLock()
        self._inbox: Inbox | None = None
        self._ended = native.Bell()

    def spawn(self, job: Callable[[], None]) -> None:
        """Run a job on a greenlet of the thread, which is started first where it must be.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        with self._lock:
            if self._inbox is None:
                inbox, ended = Inbox(), native.Bell()
                native.start_thread(lambda: _live(inbox, ended), self._name)
                self._ended = ended
                self._inbox = inbox
            self._inbox.put(job)

    def close(self) -> None:
        """Have the thread end after its jobs, and wait for that.

        A thread that has run greenlets crashes when the interpreter ends before it does.
        """
        with self._lock:
            inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.close()
            self._ended.wait(_END_SECONDS)


def _live(inbox: Inbox, ended: native.Bell) -> None:
    try:
        _serve(inbox)
    finally:
        ended.ring()


def _serve(inbox: Inbox) -> None:
    inbox.serve()
    # Sockets that outlive their hub fail when the interpreter closes them at its end, and the
    # log line about that waits for a lock which nobody releases any more.
    native.end_thread()
    # Neither library frees what the hub of a thread holds when the thread ends.
    if native.green_library() == "gevent":
        from gevent import get_hub

        get_hub().destroy()
    elif native.green_library() == "eventlet":
        from eventlet.hubs import get_hub

        get_hub().abort(wait=True)
