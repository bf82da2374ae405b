"""Workers' status pages: which to read, and what they answer."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import Refusal
from celery_sqs_heartbeat.settings.address import parse_address, token_fault, url_of

#: The page's address if neither an option nor the app sets one. docs/status-page.md uses it, too.
DEFAULT_URL = "http://127.0.0.1:9808"
#: How long a page may take to answer, in seconds.
PATIENCE = 5.0
#: The most bytes to read of an answer: several times the size of the largest page.
MAX_ANSWER = 4_000_000
#: How many pages to read at the same time.
_THREADS = 8


ADDRESS = "sqs_heartbeat_status"
TOKEN = "sqs_heartbeat_status_token"  # noqa: S105 - the setting's name.
_WAY_OUT = "name the page with --url"
_NO_PAGE = "this is not a worker's status page: check the address"
#: What a page says instead of its contents, by its status.
_REFUSALS = {
    401: "needs its token: use --token, or set SQS_HEARTBEAT_STATUS_TOKEN or the app's "
    "sqs_heartbeat_status_token",
    403: "refuses this host name: use the machine's address, such as --url http://127.0.0.1:PORT",
    503: "is too busy to answer: try again",
}


@dataclass(frozen=True, kw_only=True)
class Page:
    """A worker's page: its contents, or why it could not be read.

    Attributes:
        origin: Where its URL comes from; empty if an option names it.
    """

    url: str
    origin: str = ""
    payload: dict[str, Any] | None = None
    fault: str = ""

    def __str__(self) -> str:
        """Return why it could not be read."""
        place = f"{self.url} ({self.origin})" if self.origin else self.url
        return f"{place}: {self.fault}"

    def as_plain(self) -> dict[str, Any]:
        """Return the page as its JSON object."""
        said = {"error": self.fault} if self.payload is None else self.payload
        return {"url": self.url, **said}

    @property
    def name(self) -> str:
        """The worker's name, or the page's URL if it has none."""
        return str((self.payload or {}).get("worker") or self.url)

    @property
    def is_well(self) -> bool:
        """Whether the worker answers and is healthy, and all its leases are well."""
        if self.payload is None:
            return False
        return bool(self.payload["health"]["status"] == "ok" and self.payload["not_well"] == 0)


def url_fault(url: str) -> str | None:
    """Return what is wrong with the URL of a page, or None."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        return f"{url!r} is not an address like {DEFAULT_URL}"
    if parts.query or parts.fragment or parts.username is not None:
        # The error does not quote the URL, because it may contain the token.
        return (
            f"the address of {parts.hostname!r} has more than http://HOST:PORT: remove the part "
            "after ? or # and the part before @; set a token with --token or, better, "
            "SQS_HEARTBEAT_STATUS_TOKEN"
        )
    return None


def own_page(app: Any) -> Page:
    """Return the page in the app's settings.

    Raises:
        Refusal: The app's settings can't be read, or their address is unusable.
    """
    address = _setting(app, ADDRESS)
    if address is None:
        return Page(url=DEFAULT_URL, origin=f"the default: the app sets no {ADDRESS}")
    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise Refusal(f"{ADDRESS}={escaped(repr(address))}: {error}; or {_WAY_OUT}") from None
    if port == 0:
        raise Refusal(
            f"{ADDRESS}={address!r}: the worker takes any free port and logs its number: {_WAY_OUT}"
        )
    return Page(url=url_of(host, port), origin=f"the app's {ADDRESS}")


def own_token(app: Any) -> str | None:
    """Return the token in the app's settings.

    Raises:
        Refusal: The app's settings can't be read, or their token is invalid.
    """
    token: str | None = _setting(app, TOKEN)
    if token is not None and (fault := token_fault(token)):
        raise Refusal(f"{TOKEN}=...: {fault}; or use another one with --token")
    return token


def _setting(app: Any, name: str) -> Any:
    try:
        return app.conf.get(name)
    except Exception as error:
        # Celery reads the settings now, so this is any error of the user's module.
        cause = escaped(f"{type(error).__name__}: {error}")
        raise Refusal(
            f"{name}: the app's settings can't be read ({cause}): fix them, or use --url "
            "and --token, which need no settings"
        ) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, because the token is only for the named address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Treat the redirection as an error."""


#: Uses no proxies, because the pages are on this machine or near it.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())


def _read_page(url: str, token: str | None = None) -> Any:
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
        try:
            payload = _read_page(f"{url}/healthz")
        except urllib.error.HTTPError as error:
            # A keeper in trouble answers with 503.
            with error:
                payload = json.loads(error.read(MAX_ANSWER))
    except (OSError, HTTPException, ValueError, RecursionError):
        return False
    return isinstance(payload, dict) and {"status", "last_tick_age", "standstills"} <= set(payload)


def ask_all(pages: Sequence[Page], token: str | None) -> list[Page]:
    """Read the leases of every page, several at the same time. Network errors become faults."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(lambda page: _ask(page, token), pages))


def _ask(page: Page, token: str | None) -> Page:
    try:
        payload = _read_page(f"{page.url.rstrip('/')}/leases", token)
    except urllib.error.HTTPError as error:
        with error:
            other = f"answered with HTTP status {error.code}: {_NO_PAGE}"
            return replace(page, fault=_REFUSALS.get(error.code, other))
    except (OSError, HTTPException) as error:
        return replace(page, fault=_silence(error))
    except (ValueError, RecursionError):
        return replace(page, fault=_NO_PAGE)
    if not isinstance(payload, dict) or not isinstance(payload.get("leases"), list):
        return replace(page, fault=_NO_PAGE)
    return replace(page, payload=payload)


def _silence(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    shown = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    way_out = (
        "check whether the worker is stopped or its machine is overloaded"
        if isinstance(reason, TimeoutError)
        else "check the address, which a worker with sqs_heartbeat_status logs at startup, at the "
        "level INFO"
    )
    return f"does not answer ({escaped(shown)}): {way_out}"
