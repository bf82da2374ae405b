"""Delays signal handlers while curl works, and until the messages it received are leased.

curl calls Python while it works, and Python would handle a pending signal there. Until that handler
returns, no other thread may work on the same handles. So while Celery's soft shutdown waits for
tasks, no one would read an open poll. The same holds for an answer that curl has returned already
and that is not leased yet.

Tasks, consumers and calls for credentials are exempt (`SignalSafeLock.opened`), because they may
take long and must be interruptible.
"""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock


class UninterruptedCurl:
    """Wraps the curl handles of one of kombu's clients.

    Args:
        multi: pycurl's object for them, a `CurlMulti`.
        working: The lock to hold while they work.
    """

    def __init__(self, multi: Any, working: SignalSafeLock) -> None:
        self.multi = multi
        self._working = working

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that does not work on handles."""
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
        """Return at most one finished request, and how many more there are.

        Only one, so that another thread can still find the others while this one is handled.
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
    """Return pycurl's own object, for a thread that no signal handler interrupts."""
    return multi.multi if isinstance(multi, UninterruptedCurl) else multi


def guard_curl(client: Any, working: SignalSafeLock) -> None:
    """Delay signal handlers while a client's curl works. A second call does nothing.

    Args:
        client: kombu's client for polls. A client without curl is left unchanged.
        working: The lock to hold meanwhile, and until the received messages are leased.
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
