"""Requests to the status page, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Headers of every answer: nothing is stored, framed, guessed or fetched from elsewhere.
SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}


class RefusedError(Exception):
    """The request is answered with an error."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = Response(status=status, body=f"{sentence}\n".encode(), headers=named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. Header names are in lower case, and the path has no query."""

    path: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer."""

    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
