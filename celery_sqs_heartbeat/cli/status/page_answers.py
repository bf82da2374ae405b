"""Reads workers' status pages."""

from __future__ import annotations

import urllib.error
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from celery_sqs_heartbeat.cli.page_requests import read_page
from celery_sqs_heartbeat.cli.status.page_targets import Target
from celery_sqs_heartbeat.cli.status.payload_check import NO_PAGE, payload_fault
from celery_sqs_heartbeat.common.escaping import escaped

#: How many pages to read at the same time.
_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class PageAnswer:
    """The leases on a worker's page, or why it could not be read."""

    target: Target
    payload: dict[str, Any] | None = None
    fault: str = ""

    def as_plain(self) -> dict[str, Any]:
        """Return the answer as its JSON object."""
        said = {"error": self.fault} if self.payload is None else self.payload
        return {"url": self.target.url, **said}

    @property
    def is_well(self) -> bool:
        """Whether the worker answers and is healthy, and all its leases are well."""
        if self.payload is None:
            return False
        return self.payload["health"]["status"] == "ok" and not self.payload["not_well"]


def check_url(url: str) -> str | None:
    """Return what is wrong with the URL of a page, or None."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        return f"{url!r} is not an address like http://127.0.0.1:9808"
    if parts.query or parts.fragment or parts.username is not None:
        # The error does not quote the URL, because it may contain the token.
        return (
            f"the address of {parts.hostname!r} has more than http://HOST:PORT: remove the part "
            "after ? or # and the part before @; set a token with --token or, better, "
            "SQS_HEARTBEAT_STATUS_TOKEN"
        )
    return None


def ask_all(targets: Sequence[Target], token: str | None) -> list[PageAnswer]:
    """Read the leases of every page, several at the same time. Network errors become answers."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(lambda target: _ask(target, token), targets))


def _ask(target: Target, token: str | None) -> PageAnswer:
    try:
        payload = read_page(f"{target.url.rstrip('/')}/leases", token)
    except urllib.error.HTTPError as error:
        with error:
            return PageAnswer(target=target, fault=_meaning(error.code))
    except (OSError, HTTPException) as error:
        return PageAnswer(target=target, fault=_silence(error))
    except (ValueError, RecursionError):
        return PageAnswer(target=target, fault=NO_PAGE)
    if fault := payload_fault(payload):
        return PageAnswer(target=target, fault=fault)
    return PageAnswer(target=target, payload=payload)


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


def _meaning(code: int) -> str:
    if code == 401:
        return (
            "needs its token: use --token, or set SQS_HEARTBEAT_STATUS_TOKEN or the app's "
            "sqs_heartbeat_status_token"
        )
    if code == 403:
        return (
            "refuses this host name: use the machine's address, such as --url http://127.0.0.1:PORT"
        )
    if code == 503:
        return "is too busy to answer: try again"
    return f"answered with HTTP status {code}: {NO_PAGE}"
