"""Sends requests over connections that are kept, with less CPU than boto3's HTTP session."""

from __future__ import annotations

import socket
import ssl
import weakref
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.httpsession import MAX_POOL_CONNECTIONS, create_urllib3_context, get_cert_path
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError as Urllib3ConnectTimeoutError
from urllib3.exceptions import NewConnectionError
from urllib3.util.connection import is_connection_dropped

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.sqs.direct.http_responses import DirectResponse, Unreadable, read_http

_PORTS = {"http": 80, "https": 443}
#: How long boto3 makes the calls after one that failed here, in seconds.
PAUSE_SECONDS = 60.0
#: boto3 sets the second one only on request. It does no harm, and shows connections that a
#: firewall has dropped.
_OPTIONS = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
#: botocore's error for each error of a new connection. The first that fits counts.
_CONNECT_ERRORS: tuple[tuple[Any, type[BotoCoreError]], ...] = (
    (NewConnectionError, EndpointConnectionError),
    ((TimeoutError, Urllib3ConnectTimeoutError), ConnectTimeoutError),
    (ssl.SSLError, SSLError),
    (OSError, EndpointConnectionError),
    # urllib3's errors of certificates have no class of their own in common.
    (Exception, SSLError),
)


class Connections:
    """A client's connections to one server. Several threads may use it.

    urllib3 opens them, with botocore's settings for TLS. The requests are written and the responses
    read here. Errors are those of botocore's HTTP session.

    Args:
        url: A URL of the server.
        connect_timeout: Seconds; None for no limit.
        read_timeout: Seconds that each write or read may take; None for no limit.
        ca_bundle: The file of the certificates to trust; True for botocore's.
        keep: How many connections are kept open while no call uses them.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float | None,
        read_timeout: float | None,
        ca_bundle: str | bool = True,
        keep: int = MAX_POOL_CONNECTIONS,
    ) -> None:
        parts = urlsplit(url)
        usual = _PORTS[parts.scheme]
        self._url = url
        self._is_secure = parts.scheme == "https"
        self._address = (parts.hostname or "", parts.port or usual)
        # As boto3 signs it: without the usual port.
        self._host = parts.netloc.lower().removesuffix(f":{usual}")
        self._timeouts = (connect_timeout, read_timeout)
        self._ca_bundle = ca_bundle
        self._keep = keep
        self._kept: list[HTTPConnection] = []
        self._paused_until = 0.0
        weakref.finalize(self, _close_all, self._kept)

    @property
    def is_usable(self) -> bool:
        """Whether to use them now. Not for a while after a call that failed.

        boto3 makes these calls meanwhile. So if something is wrong here and not there, few fail.
        """
        return clock.now() >= self._paused_until

    def close(self) -> None:
        """Close the connections that no call uses."""
        _close_all(self._kept)

    def send(self, request: AWSPreparedRequest) -> DirectResponse:
        """Send a request and return its response.

        Args:
            request: Its headers are strings, without `Host` and `Accept-Encoding`.

        Raises:
            BotoCoreError: There is no connection, or no response.
        """
        try:
            return self._send(request)
        except BaseException:
            self._paused_until = clock.now() + PAUSE_SECONDS
            raise

    def _send(self, request: AWSPreparedRequest) -> DirectResponse:
        data = self._written(request)
        connection = self._take() or self._open()
        sock: Any = connection.sock
        is_kept = False
        try:
            sock.sendall(data)
            response = read_http(sock.recv)
            is_kept = response.may_reuse
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except (OSError, Unreadable) as error:
            raise ConnectionClosedError(endpoint_url=request.url, error=error) from error
        except Exception as error:
            raise HTTPClientError(error=error) from error
        finally:
            if is_kept and len(self._kept) < self._keep:
                self._kept.append(connection)
            else:
                connection.close()
        return response

    def _written(self, request: AWSPreparedRequest) -> bytes:
        parts = urlsplit(request.url)
        query = f"?{parts.query}" if parts.query else ""
        lines = "".join([f"{name}: {value}\r\n" for name, value in request.headers.items()])
        head = (
            f"POST {parts.path or '/'}{query} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Accept-Encoding: identity\r\n{lines}\r\n"
        )
        return head.encode("latin-1") + bytes(request.body)

    def _take(self) -> HTTPConnection | None:
        """Return a kept connection that the server has not closed; None if there is none."""
        while self._kept:
            try:
                connection = self._kept.pop()
            except IndexError:
                # Another thread has taken it.
                return None
            if not is_connection_dropped(connection):
                return connection
            connection.close()
        return None

    def _open(self) -> HTTPConnection:
        """Return a new connection.

        Raises:
            BotoCoreError: There is none, and nothing was sent.
        """
        connection = self._new()
        try:
            connection.connect()
        except BaseException as error:
            connection.close()
            if not isinstance(error, Exception):
                raise
            kind = next(kind for types, kind in _CONNECT_ERRORS if isinstance(error, types))
            raise kind(endpoint_url=self._url, error=error) from error
        sock: Any = connection.sock
        sock.settimeout(self._timeouts[1])
        return connection

    def _new(self) -> HTTPConnection:
        host, port = self._address
        timeout = self._timeouts[0]
        if not self._is_secure:
            return HTTPConnection(host, port, timeout=timeout, socket_options=_OPTIONS)
        connection = HTTPSConnection(
            host,
            port,
            timeout=timeout,
            socket_options=_OPTIONS,
            ssl_context=create_urllib3_context(),
        )
        # Before urllib3 2, the constructor does not take them, and does not set all of them.
        connection.assert_hostname = None
        connection.cert_reqs = "CERT_REQUIRED"
        connection.ca_certs = get_cert_path(self._ca_bundle)
        return connection


def _close_all(connections: list[HTTPConnection]) -> None:
    while connections:
        with suppress(IndexError):
            # Another thread may take it first.
            connections.pop().close()
