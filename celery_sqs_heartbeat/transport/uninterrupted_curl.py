"""Keeps the handlers of signals out of curl's work, and out of the reading of what it brings.

curl calls Python while it works, and a signal that has come is handled there. Until that handler is
through, no other thread may work on the same handles: an open poll would not be read for as long as
Celery's soft shutdown waits for tasks. Nor would an answer that curl has handed over already, and
that is not leased yet.

Tasks, consumers and calls for credentials are let out of that, by `SignalSafeLock.opened`: they
may take long, and are to be interrupted.
"""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock


class UninterruptedCurl:
    """Stands for the curl handles of one of kombu's clients.

    Args:
        multi: pycurl's object for them, a `CurlMulti`.
        working: Is held while they work.
    """

    def __init__(self, multi: Any, working: SignalSafeLock) -> None:
        self.multi = multi
        self._working = working

    def __getattr__(self, name: str) -> Any:
        """Return what does not work on handles."""
        return getattr(self.multi, name)

    def socket_all(self) -> Any:
        """Work on all handles."""
        with self._working:
            return self.multi.socket_all()

    def socket_action(self, *action: Any) -> Any:
        """Work on the handles of a socket."""
        with self._working:
            return self.multi.socket_action(*action)

    def info_read(self) -> Any:
        """Return how many more requests are over than the one that this returns, and that one.

        No more than one: while it is worked on, another thread can still find the others.
        """
        return self.multi.info_read(1)

    def add_handle(self, curl: Any) -> None:
        """Add a handle."""
        with self._working:
            self.multi.add_handle(curl)

    def remove_handle(self, curl: Any) -> None:
        """Remove a handle."""
        with self._working:
            self.multi.remove_handle(curl)


def unguarded(multi: Any) -> Any:
    """Return pycurl's own object, for a thread that no signal's handler interrupts."""
    return multi.multi if isinstance(multi, UninterruptedCurl) else multi


def guard_curl(client: Any, working: SignalSafeLock) -> None:
    """Have handlers of signals put off while a client's curl works. Does nothing the second time.

    Args:
        client: kombu's client for polls; one without curl is left alone.
        working: Is held meanwhile, and until what was received is leased.
    """
    multi = getattr(client, "_multi", None)
    if multi is None or isinstance(multi, UninterruptedCurl):
        return
    read = client._process_pending_requests

    def read_uninterrupted() -> None:
        with working:
            read()

    client._multi = UninterruptedCurl(multi, working)
    client._socket_action = client._multi.socket_action
    client._process_pending_requests = read_uninterrupted
