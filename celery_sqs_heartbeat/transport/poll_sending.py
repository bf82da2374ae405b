"""Sends a poll with what kombu's HTTP clients lack: a guard before it, and an end to it.

kombu only writes a request down where it is made; curl sends it in the event loop's next tick.
A signal between the two begins a cold or soft shutdown in its handler, which cancels the
consumers and gives the messages back. The interrupted tick then goes on to its end, and the
poll would take those very messages: hidden from every worker for a whole visibility timeout.

And kombu gives a request no timeout: one whose answer was lost on the way (a NAT entry that
is gone, say) would be waited for for ever. curl's own timeout is no help. It counts on while
the event loop stands in a solo pool's task, and is looked at before the answer that has come
meanwhile is read. So curl only asks us, whenever it works on a request, whether to go on.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import urllib3

try:
    import pycurl
except ImportError:  # kombu 5.5 sends with urllib3, in the same step that makes the request.
    pycurl = None


class Watcher(Protocol):
    """Decides about one request."""

    def may_send(self) -> bool:
        """Return whether it may be sent now. Called right before that."""

    def is_aborted(self) -> bool:
        """Return whether its answer is not waited for any more."""

    def prepared(self) -> None:
        """Note that it is about to be sent: it may have waited for a free connection."""


def sending_for(connection: Any, watcher: Watcher, *, patience: float) -> Any:
    """Return a view of kombu's asynchronous SQS connection for one request.

    Args:
        patience: Seconds after which a client that blocks (kombu 5.5's) gives the request up.
    """
    view = copy.copy(connection)
    view._httpclient = _Client(connection._httpclient, watcher, patience)
    return view


def is_polls(request: Any) -> bool:
    """Return whether a request was sent by `sending_for`."""
    return isinstance(getattr(request.on_prepare, "__self__", None), _Client)


class _Client:
    """kombu's HTTP client, as one request sees it."""

    def __init__(self, client: Any, watcher: Watcher, patience: float) -> None:
        self._client = client
        self._watcher = watcher
        self._patience = patience

    def add_request(self, request: Any) -> Any:
        """Have the request sent."""
        if hasattr(self._client, "get_pool"):
            # Its connections are kept by their timeout, too.
            pool = self._client.get_pool(request)
            pool.connection_pool_kw["timeout"] = urllib3.Timeout(self._patience)
            self._watcher.prepared()
        else:
            request.on_prepare = self._prepare
        return self._client.add_request(request)

    def _prepare(self, curl: Any) -> None:
        watcher = self._watcher

        def decide(*_: Any) -> Any:
            return pycurl.PREREQFUNC_OK if watcher.may_send() else pycurl.PREREQFUNC_ABORT

        if hasattr(pycurl, "PREREQFUNCTION"):
            curl.setopt(pycurl.PREREQFUNCTION, decide)
        curl.setopt(pycurl.NOPROGRESS, False)
        curl.setopt(pycurl.XFERINFOFUNCTION, lambda *_: int(watcher.is_aborted()))
        watcher.prepared()
