"""Reads an HTTP response from a connection that can be used again."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse, parse_headers
from typing import Any, cast

from botocore.awsrequest import HeadersDict

#: Returns the next bytes of a connection, at most as many as asked; none after its end.
Receive = Callable[[int], bytes]

#: Longer than a TLS record (RFC 8446, 5.1). So no part of a record stays behind in the TLS object,
#: where no one would see that there is more than the response.
_CHUNK = 65_536
#: The longest head that is read, and the most headers. The standard library's `http.client` takes
#: lines of that length, and so many headers.
_MAX_HEAD, _MAX_FIELDS = 65_536, 99
#: The digits of the longest length that is read here.
_MAX_DIGITS = 9
#: Statuses whose responses have no body, whatever length they state (RFC 9110, 6.4.1).
_WITHOUT_BODY = frozenset({b"204", b"304"})


class Unreadable(Exception):
    """The server has not sent a whole HTTP response."""


@dataclass(frozen=True, slots=True, repr=False)
class DirectResponse:
    """A response, with the names of botocore's `AWSResponse`.

    Attributes:
        fields: Its headers, as bytes if they were not read yet.
        may_reuse: Whether the connection can be used again.
    """

    status_code: int
    content: bytes
    fields: HTTPMessage | bytes
    may_reuse: bool

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, whose names may be in any case."""
        fields = self.fields
        read = parse_headers(io.BytesIO(fields)) if isinstance(fields, bytes) else fields
        return cast(Mapping[str, str], HeadersDict(read))


def read_http(receive: Receive) -> DirectResponse:
    """Return the response to a POST request.

    Usually a response states its length, and then it takes a few microseconds. The standard library
    reads any other response, and its connection can't be used again.

    Raises:
        Unreadable: It is no HTTP response, or ends too early.
        OSError: The connection failed. A TimeoutError: nothing arrived in time.
    """
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0 and len(data) <= _MAX_HEAD:
        if b"\n\n" in data:
            return _read_unusual(data, receive)
        if not (more := receive(_CHUNK)):
            break
        data += more
    if not 0 <= end <= _MAX_HEAD:
        raise Unreadable(f"the response has no usual head: {data[:100]!r}")
    first, *fields = data[:end].split(b"\r\n")
    version, status, space = first[:9], first[9:12], first[12:13]
    length, stays_open = _framing(fields)
    is_usual = (
        version == b"HTTP/1.1 "
        and status.isdigit()
        and status[:1] in b"2345"
        and space in (b"", b" ")
        and len(fields) <= _MAX_FIELDS
    )
    if length is None or not is_usual or status in _WITHOUT_BODY:
        return _read_unusual(data, receive)
    content = data[end + 4 :]
    while len(content) < length:
        if not (more := receive(_CHUNK)):
            raise Unreadable(f"the response ended after {len(content)} of {length} bytes")
        content += more
    # More than one response would be taken for the answer to the next request.
    may_reuse = stays_open and len(content) == length
    return DirectResponse(int(status), content[:length], data[len(first) + 2 : end + 4], may_reuse)


def _framing(fields: Sequence[bytes]) -> tuple[int | None, bool]:
    """Return the length that the headers state, and whether the connection stays open.

    The length is None if they state none, or do not state it in the usual way.
    """
    lengths: list[int | None] = []
    stays_open = True
    for field in fields:
        name, _, value = field.partition(b":")
        name, value = name.lower(), value.strip()
        if name == b"content-length":
            is_number = value.isdigit() and len(value) <= _MAX_DIGITS
            lengths.append(int(value) if is_number else None)
        elif name == b"transfer-encoding" or name[:1].isspace():
            lengths.append(None)
        elif name == b"connection":
            stays_open = stays_open and value.lower() == b"keep-alive"
    return (lengths[0] if len(lengths) == 1 else None), stays_open


def _read_unusual(data: bytes, receive: Receive) -> DirectResponse:
    response = HTTPResponse(cast(Any, _Received(data, receive)), method="POST")
    try:
        response.begin()
        return DirectResponse(response.status, response.read(), response.headers, may_reuse=False)
    except (HTTPException, ValueError) as error:
        raise Unreadable(f"the response is not HTTP: {error!r}") from error


class _Received(io.RawIOBase):
    """A connection, some of whose bytes were received already, as `http.client` reads it."""

    def __init__(self, data: bytes, receive: Receive) -> None:
        self._data = data
        self._receive = receive

    def makefile(self, *_: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._data or self._receive(len(buffer))
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self._data = data[count:]
        return count
