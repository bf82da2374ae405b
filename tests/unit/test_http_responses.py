"""Responses are read as the standard library reads them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any

import pytest
from botocore.awsrequest import HeadersDict
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.sqs.direct.http_responses import Unreadable, read_http
from tests.fuzz.shapes import FUZZ
from tests.support.direct_calls import response_of


class Received(io.BytesIO):
    """Bytes that arrive in pieces of one size, and then the end of the connection."""

    def __init__(self, data: bytes, piece: int = 65_536) -> None:
        super().__init__(data)
        self._piece = piece

    def recv(self, count: int) -> bytes:
        return self.read(min(count, self._piece))

    def makefile(self, *_: str) -> io.BytesIO:
        return self


def by_stdlib(data: bytes) -> tuple[int, bytes, dict[str, str]] | None:
    response = HTTPResponse(Received(data), method="POST")  # type: ignore[arg-type]
    try:
        response.begin()
        return response.status, response.read(), lower(HeadersDict(response.headers))
    except (HTTPException, ValueError):
        return None


def ours(data: bytes, piece: int = 65_536) -> tuple[int, bytes, dict[str, str]] | None:
    try:
        response = read_http(Received(data, piece).recv)
    except Unreadable:
        return None
    return response.status_code, response.content, lower(response.headers)


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


USUAL = response_of("Content-Length: 2", "x-amzn-RequestId: 1")
#: Each response, and whether its connection may be used again; None if it is unreadable.
RESPONSES: list[tuple[bytes, bool | None]] = [
    (USUAL, True),
    (response_of("content-length:2"), True),
    (response_of("Content-Length: 2", "Connection: keep-alive"), True),
    (response_of("Content-Length: 0", body=b""), True),
    (response_of("Content-Length: 2", status="HTTP/1.1 503 Slow down"), True),
    (response_of("Content-Length: 2", status="HTTP/1.1 200"), True),
    (response_of("Content-Length: 2", "Connection: Close"), False),
    (response_of("Content-Length: 2", "Connection: upgrade"), False),
    (response_of("Content-Length: 2", "Connection: close", "Connection: keep-alive"), False),
    (response_of("Content-Length: 2", *["x: y"] * 98), True),
    (response_of("Content-Length: 2", *["x: y"] * 99), None),
    (response_of("Content-Length: " + "0" * 5_000 + "2"), False),
    (response_of("Content-Length: 2", status="HTTP/1.1 2000 OK"), None),
    (USUAL.replace(b"\r\n", b"\n"), False),
    (USUAL + USUAL, False),
    (USUAL + b"\r\n", False),
    (response_of("Content-Length: 2", status="HTTP/1.0 200 OK"), False),
    (response_of("x: y"), False),
    (response_of("Content-Length: 2", "Content-Length: 2"), False),
    (response_of("Content-Length: two"), False),
    (response_of("Content-Length: -1"), False),
    (response_of("Content-Length: 2", " folded: 1"), False),
    (response_of("Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n"), False),
    (
        response_of(
            "Transfer-Encoding: chunked", "Content-Length: 9", body=b"2\r\n{}\r\n0\r\n\r\n"
        ),
        False,
    ),
    (response_of(status="HTTP/1.1 204 No Content", body=b""), False),
    (response_of("Content-Length: 2", status="HTTP/1.1 304 Not Modified", body=b""), False),
    (response_of(status="HTTP/1.1 100 Continue", body=b"") + USUAL, False),
    (USUAL[:-1], None),
    (USUAL[:20], None),
    (b"", None),
    (b"\r\n\r\n", None),
    (b"no HTTP at all\r\n\r\n", None),
    (response_of("Content-Length: 2", status="HTTP/1.1 abc OK"), None),
    (response_of("Content-Length: 2", status="HTTP/1.1 99 OK"), None),
    (response_of("Transfer-Encoding: chunked", body=b"2\r\n{"), None),
    (response_of("Transfer-Encoding: chunked", body=b"x\r\n{}"), None),
    (response_of(f"x: {'y' * 70_000}", "Content-Length: 2"), None),
    (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, None),
]


@pytest.mark.parametrize(("data", "may_reuse"), RESPONSES)
def test_a_connection_is_used_again_after_a_whole_usual_response(
    data: bytes, may_reuse: bool | None
) -> None:
    try:
        found: bool | None = read_http(Received(data).recv).may_reuse
    except Unreadable:
        found = None
    assert found is may_reuse


@pytest.mark.parametrize("piece", [1, 7, 65_536])
@pytest.mark.parametrize(("data", "may_reuse"), RESPONSES)
def test_a_response_is_read_as_by_the_standard_library_or_not_at_all(
    data: bytes, may_reuse: bool | None, piece: int
) -> None:
    assert ours(data, piece) == (None if may_reuse is None else by_stdlib(data))


#: Parts of responses, right and wrong.
PARTS = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK", b"HTTP/1.1 100 Continue", b"HTTP/1.0", b" 404"),
        *(b"\r\n", b"\r\n\r\n", b"\n", b":", b" ", b"\xff", b"x: y"),
        *(b"Content-Length: 2", b"Content-Length: ", b"1", b"{}"),
        *(b"Transfer-Encoding: chunked", b"2\r\n{}\r\n", b"0\r\n\r\n", b"Connection: close"),
    ]
)


@FUZZ
@given(start=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]), parts=st.lists(PARTS, max_size=12))
def test_any_bytes_are_read_as_by_the_standard_library_or_unreadable(
    start: bytes, parts: list[bytes]
) -> None:
    data = start + b"".join(parts)
    found = ours(data)
    assert found is None or found == by_stdlib(data)
    assert found == ours(data, 1)


def test_reading_ends_with_an_error_of_the_connection() -> None:
    def fail(count: int) -> Any:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        read_http(fail)
