"""Chooses the status pages to read and their token: from the options, else from the app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import Refusal
from celery_sqs_heartbeat.settings.address import parse_address, token_fault, url_of

#: The page's address if neither an option nor the app sets one. docs/status-page.md uses it, too.
DEFAULT_URL = "http://127.0.0.1:9808"
ADDRESS = "sqs_heartbeat_status"
TOKEN = "sqs_heartbeat_status_token"  # noqa: S105 - the setting's name.
_WAY_OUT = "name the page with --url"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A page to read.

    Attributes:
        origin: Where its URL comes from; empty if an option names it.
    """

    url: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.url} ({self.origin})" if self.origin else self.url


def targets(app: Any, urls: Sequence[str]) -> list[Target]:
    """Return the pages to read: those that options name, else the one in the app's settings.

    Raises:
        Refusal: The app's settings can't be read, or their address is unusable.
    """
    if urls:
        return [Target(url=url) for url in urls]
    address = _setting(app, ADDRESS)
    if address is None:
        return [Target(url=DEFAULT_URL, origin=f"the default: the app sets no {ADDRESS}")]
    return [Target(url=_url_of(address), origin=f"the app's {ADDRESS}")]


def token_for(app: Any, token: str | None) -> str | None:
    """Return the token to send: that of the option or the environment, else the app's.

    Raises:
        Refusal: The app's settings can't be read, or their token is invalid.
    """
    if token is not None:
        return token
    token = _setting(app, TOKEN)
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


def _url_of(address: Any) -> str:
    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise Refusal(f"{ADDRESS}={escaped(repr(address))}: {error}; or {_WAY_OUT}") from None
    if port == 0:
        raise Refusal(
            f"{ADDRESS}={address!r}: the worker takes any free port and logs its number: {_WAY_OUT}"
        )
    return url_of(host, port)
