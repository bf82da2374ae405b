"""Who may see the status page."""

from __future__ import annotations

import hmac

from celery_sqs_heartbeat.observe.status.http import RefusedError, Request
from celery_sqs_heartbeat.observe.status.seats import PROBES
from celery_sqs_heartbeat.settings import checks
from celery_sqs_heartbeat.settings.address import is_loopback, parse_address

#: Paths that need no token, because they contain nothing about messages: the page's own files, and
#: the health, so that a probe needs no secret.
OPEN = frozenset({"/", "/page.css", "/page.js", "/icon.svg", *PROBES})


def token_fault(host: str, token: str | None) -> str | None:
    """Return the fault of a token for a server that listens at that host, or None."""
    if token is not None:
        return checks.token_fault(token)
    if is_loopback(host):
        return None
    return (
        f"must be set, because other machines can reach {host}: set it to a long random "
        "text, or serve the page on 127.0.0.1"
    )


class Guard:
    """Accepts or refuses requests.

    Args:
        host: The address that the server listens at.
        token: The token that all data needs, or None.
    """

    def __init__(self, host: str, token: str | None) -> None:
        self._is_local = is_loopback(host)
        self._token = token

    def check(self, request: Request) -> None:
        """Refuse a request that must not be answered.

        Raises:
            RefusedError: The request is refused; the error has the reason.
        """
        if self._is_local:
            _check_host(request.headers.get("host"))
        if self._token is not None and request.path not in OPEN:
            self._check_token(self._token, request.headers.get("authorization", ""))

    @staticmethod
    def _check_token(token: str, given: str) -> None:
        scheme, _, shown = given.partition(" ")
        is_right = hmac.compare_digest(shown.strip().encode("latin-1"), token.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise RefusedError(
                401,
                "Send the header 'Authorization: Bearer ...' with the value of "
                "sqs_heartbeat_status_token.",
                WWW_Authenticate='Bearer realm="sqs-heartbeat"',
            )


def _check_host(header: str | None) -> None:
    """Refuse another host's name: a website may have made it resolve to this machine.

    The port may differ, because of a tunnel.
    """
    if header is None:
        raise RefusedError(400, "The header Host is missing.")
    try:
        host, _ = parse_address(header)
    except ValueError:
        host = header.strip("[]")
    if not is_loopback(host.lower()):
        raise RefusedError(403, "Use the host name localhost or 127.0.0.1.")
