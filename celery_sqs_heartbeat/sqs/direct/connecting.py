"""Decides whether a client's direct calls have connections of their own."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from botocore.httpsession import URLLib3Session
from botocore.session import get_session
from botocore.utils import get_environ_proxies
from urllib3.connectionpool import HTTPConnectionPool

from celery_sqs_heartbeat.sqs.direct.connections import Connections


class Servers:
    """The servers of one client's calls, and its connections to them.

    Made with the client, because boto3 reads the environment's certificates then.
    """

    def __init__(self) -> None:
        given = get_session().get_config_variable("ca_bundle")
        self._ca_bundle: str | bool = given or os.environ.get("REQUESTS_CA_BUNDLE") or True
        self._connections: dict[tuple[str, str], Connections] = {}

    def close(self) -> None:
        """Close the connections that no call uses."""
        for each in list(self._connections.values()):
            each.close()

    def connections(self, url: str, client: Any, http_session: Any) -> Connections | None:
        """Return the connections for a URL; None if the client's own must be used.

        The client's own are used with a proxy or a client certificate, and if something watches or
        replaces what boto3 sends with.

        Args:
            http_session: What boto3 sends the client's calls with.
        """
        config = client.meta.config
        parts = urlsplit(url)
        proxies = get_environ_proxies(url) if config.proxies is None else config.proxies
        if (
            type(http_session) is not URLLib3Session
            # An instrumentation, such as OpenTelemetry's.
            or hasattr(HTTPConnectionPool.urlopen, "__wrapped__")
            or proxies.get(parts.scheme)
            or config.client_cert
            or "@" in parts.netloc
            or not url.isascii()
        ):
            return None
        server = (parts.scheme, parts.netloc)
        if server not in self._connections:
            self._connections[server] = Connections(
                url,
                connect_timeout=config.connect_timeout,
                read_timeout=config.read_timeout,
                ca_bundle=self._ca_bundle,
                keep=config.max_pool_connections,
            )
        return self._connections[server]
