"""A persistent HTTP connection from the proxy to the server behind it."""

from __future__ import annotations

import http.client
import select
from collections.abc import Iterable
from urllib.parse import urlsplit

from tests.support.answers import Answer, ConnectionDropped

#: Longer than any SQS call: the longest poll is 20 s.
TIMEOUT_SECONDS = 60.0

#: Headers about one connection, or that http.client sets itself (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "date",
        "expect",
        "keep-alive",
        "server",
        "transfer-encoding",
    }
)


class Upstream:
    """One connection to the server, used by one thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=TIMEOUT_SECONDS
        )

    def post(self, path: str, headers: dict[str, str], content: bytes) -> Answer:
        """Forward one request.

        Args:
            path: Path of the request.
            headers: The client's headers, including Host. Servers build queue URLs from it, so
                the URLs lead back to the proxy.
            content: The JSON body.

        Raises:
            ConnectionDropped: The server is gone, which is what the client must see.
        """
        self._drop_stale()
        try:
            self._connection.request("POST", path, content, headers)
            response = self._connection.getresponse()
            return Answer(
                status=response.status,
                content=response.read(),
                headers=end_to_end(response.getheaders()),
            )
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ConnectionDropped(reset=True) from error

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _drop_stale(self) -> None:
        # A server may close an idle connection. Sending on it would look like a fault that
        # no test injected.
        sock = self._connection.sock
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()


def end_to_end(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers that a proxy passes on."""
    return {name: value for name, value in headers if name.lower() not in _HOP_BY_HOP}
