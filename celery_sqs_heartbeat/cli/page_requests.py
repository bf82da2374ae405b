"""Requests to workers' status pages."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

#: How long a page may take to answer, in seconds.
PATIENCE = 5.0
#: The most bytes to read of an answer: several times the size of the largest page.
MAX_ANSWER = 4_000_000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, because the token is only for the named address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Treat the redirection as an error."""


#: Uses no proxies, because the pages are on this machine or near it.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())


def read_page(url: str, token: str | None = None) -> Any:
    """Return the content of a JSON page. The URL's scheme must be http or https.

    Raises:
        urllib.error.HTTPError: The status is an error or a redirection.
        OSError: There is no answer, or it takes too long.
        HTTPException: The answer is not HTTP.
        ValueError: The answer is not JSON.
        RecursionError: The JSON is nested too deeply.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310
    with _OPENER.open(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read(MAX_ANSWER))


def serves_health(url: str) -> bool:
    """Return whether a worker's status page answers at a URL. Sends no token."""
    try:
        payload = read_page(f"{url}/healthz")
    except urllib.error.HTTPError as error:
        # A keeper in trouble answers with 503.
        with error:
            return _is_health(error.read(MAX_ANSWER))
    except (OSError, HTTPException, ValueError, RecursionError):
        return False
    return _has_health(payload)


def _is_health(body: bytes) -> bool:
    try:
        return _has_health(json.loads(body))
    except (ValueError, RecursionError):
        return False


def _has_health(payload: Any) -> bool:
    return isinstance(payload, dict) and {"status", "last_tick_age", "standstills"} <= set(payload)
