"""Sends a poll with two checks that kombu's HTTP clients lack: before it is sent and afterwards.

kombu only records a request when it is made. curl sends it in the event loop's next tick. A signal
between the two begins a cold or soft shutdown in its handler, which cancels the consumers and
releases the messages. Then the interrupted tick continues, and the poll would receive those very
messages. They would be hidden from every worker for a whole visibility timeout.

kombu also gives requests no timeout. If an answer is lost on the way, for example because a NAT
entry is gone, it would wait indefinitely. curl's own timeout does not help: it continues to count
while a solo pool's task blocks the event loop, and curl checks it before it reads an answer that
arrived meanwhile. So curl asks us whether to continue each time it works on a request.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import urllib3
from botocore.client import BaseClient

from celery_sqs_heartbeat.sqs.sending import MAX_AGE_SECONDS

try:
    import pycurl
except ImportError:  # kombu 5.5 uses urllib3, and sends a request in the step that makes it.
    pycurl = None


class Watcher(Protocol):
    """Decides about one request."""

    def may_send(self) -> bool:
        """Return whether it may be sent now. Called right before it is sent."""

    def is_aborted(self) -> bool:
        """Return whether the worker no longer waits for its answer."""

    def needs_new_connection(self) -> bool:
        """Return whether the connections that are open may be dead."""

    def prepared(self) -> None:
        """Note that it is about to be sent. It may have waited for a free connection."""


def sending_for(connection: Any, watcher: Watcher, *, patience: float) -> Any:
    """Return a view of kombu's asynchronous SQS connection for one request.

    Args:
        patience: Seconds after which a client that blocks (that of kombu 5.5) gives up.
    """
    view = copy.copy(connection)
    view._httpclient = _Client(connection._httpclient, watcher, patience)
    # kombu would take such an answer, or none because SQS is unreachable, for an empty one. Now it
    # raises an error.
    view.STATUS_CODES_TIMEOUT = view.STATUS_CODES_SERVER_ERRORS = ()
    return view


def is_polls(request: Any) -> bool:
    """Return whether a request was sent by `sending_for`."""
    return isinstance(getattr(request.on_prepare, "__self__", None), _Client)


def connections(client: Any) -> int:
    """Return how many requests a client for polls sends at the same time.

    Args:
        client: A boto3 client, or kombu's HTTP client. That of kombu 5.5 blocks in each request.
    """
    if isinstance(client, BaseClient):
        return int(client.meta.config.max_pool_connections)
    return 1 if hasattr(client, "get_pool") else int(getattr(client, "max_clients", 1))


class _Client:
    """kombu's HTTP client, as one request sees it."""

    def __init__(self, client: Any, watcher: Watcher, patience: float) -> None:
        self._client = client
        self._watcher = watcher
        self._patience = patience

    def add_request(self, request: Any) -> Any:
        """Send the request."""
        if hasattr(self._client, "get_pool"):
            # urllib3 keeps a pool of connections per timeout, too.
            pool = self._client.get_pool(request)
            pool.connection_pool_kw["timeout"] = urllib3.Timeout(self._patience)
            if self._watcher.needs_new_connection():
                pool.clear()
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
        if hasattr(pycurl, "MAXAGE_CONN"):
            curl.setopt(pycurl.MAXAGE_CONN, int(MAX_AGE_SECONDS))
        curl.setopt(pycurl.FRESH_CONNECT, watcher.needs_new_connection())
        curl.setopt(pycurl.NOPROGRESS, False)
        curl.setopt(pycurl.XFERINFOFUNCTION, lambda *_: int(watcher.is_aborted()))
        watcher.prepared()
