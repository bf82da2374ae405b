"""Who may see the status page."""

from __future__ import annotations

import hmac

from celery_sqs_heartbeat.observe.status.http import RefusedError, Request
from celery_sqs_heartbeat.settings import checks
from celery_sqs_heartbeat.settings.address import is_loopback, parse_address

#: These tell nothing of messages: the page's own files, which hold no data, and whether the
#: keeper lives, so that a probe needs no secret.
OPEN = frozenset({"/", "/page.css", "/page.js", "/icon.svg", "/healthz"})


def token_fault(host: str, token: str | None) -> str | None:
    """Return what is wrong with a token for a server that listens at that host, or None."""
    if token is not None:
        return checks.token_fault(token)
    if is_loopback(host):
        return None
    return (
        f"must be set, as {host} is reached by other machines: set it to a long random "
        "text, or serve the page on 127.0.0.1"
    )


class Guard:
    """Lets requests pass or refuses them.

    Args:
        host: The address that is listened at.
        token: To be shown for all data, where one is given.
    """

    def __init__(self, host: str, token: str | None) -> None:
        self._is_local = is_loopback(host)
        self._token = token

    def check(self, request: Request) -> None:
        """Refuse a request that may not be answered.

        Raises:
            RefusedError: With the reason.
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
                "This needs the header 'Authorization: Bearer ...' with the text of "
                "sqs_heartbeat_status_token.",
                WWW_Authenticate='Bearer realm="sqs-heartbeat"',
            )


def _check_host(header: str | None) -> None:
    """Refuse a foreign name: a web page may have had it resolve to this machine.

    The port may be another, as of a tunnel.
    """
    if header is None:
        raise RefusedError(400, "The header Host is missing.")
    try:
        host, _ = parse_address(header)
    except ValueError:
        host = header.strip("[]")
    if not is_loopback(host.lower()):
        raise RefusedError(403, "Ask for this by the name localhost or 127.0.0.1.")
