"""As much of HTTP/1.1 as a status page needs: bytes in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Bytes of a request's line and headers at most.
MAX_REQUEST = 8_192

_LINE = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]+) HTTP/(\d)\.(\d)")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
#: With every answer: nothing is stored, framed, guessed or fetched from elsewhere.
_SAFE = {
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
    """The request gets an error for an answer."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.response = Response.of_text(sentence, status=status, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. The names of headers are in lower case; the path is without its query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer."""

    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_text(
        cls, text: str, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return an answer of one line of text."""
        return cls(status=status, body=f"{text}\n".encode(), headers=headers or {})

    def encode(self, *, with_body: bool = True) -> bytes:
        """Return its bytes; without the body as the answer to HEAD."""
        headers = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            **_SAFE,
            **{name.replace("_", "-"): value for name, value in self.headers.items()},
        }
        lines = [f"HTTP/1.1 {self.status} {_REASONS[self.status]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head + self.body if with_body else head


def parse_request(head: bytes) -> Request:
    """Return the request that these lines make, up to and without the empty one.

    Raises:
        RefusedError: They make none that is served here.
    """
    first, *rest = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise RefusedError(400, "This is no HTTP request.")
    if line[3] != b"1":
        raise RefusedError(505, "HTTP/1.1 is spoken here.")
    headers: dict[str, str] = {}
    for each in rest:
        header = _HEADER.fullmatch(each)
        if header is None:
            raise RefusedError(400, "A header is malformed.")
        name = header[1].decode().lower()
        if name in headers and name in ("host", "authorization"):
            raise RefusedError(400, f"There is more than one header {name}.")
        headers[name] = header[2].decode("latin-1")
    method = line[1].decode()
    if method not in ("GET", "HEAD"):
        raise RefusedError(405, "Only GET and HEAD are served here.", Allow="GET, HEAD")
    path = line[2].decode().partition("?")[0]
    return Request(method=method, path=path, headers=headers)
