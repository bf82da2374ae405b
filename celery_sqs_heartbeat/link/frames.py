"""How messages are written on the link: frames of a length and a JSON list.

JSON, as a stranger can read it, `json` writes a message in a few microseconds, and no garbled
byte can make the reader run code, as pickle's could.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: A message: its kind and its fields, plain values all.
Message = Sequence[Any]

_LENGTH = struct.Struct("<I")
#: The longest frame that is read, in bytes. One of ten messages has some ten thousand.
MAX_FRAME = 64 << 20

_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class BrokenLink(SqsHeartbeatError):
    """What came over the link can't be read: the other end is another version, or broken."""


def write(message: Message) -> bytes:
    """Return a message as it stands in a frame.

    Raises:
        TypeError: A field is no plain value.
    """
    return _write(message).encode()


def frame(written: Sequence[bytes]) -> bytes:
    """Return written messages as one frame."""
    body = b"[" + b",".join(written) + b"]"
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Puts frames together again from whatever pieces arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[list[Any]]:
        """Take in bytes; return the messages that are complete by them, in order.

        Raises:
            BrokenLink: They are none.
        """
        self._buffer += data
        messages: list[list[Any]] = []
        while (body := self._next_body()) is not None:
            messages += _read(body)
        return messages

    def _next_body(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_FRAME:
            raise BrokenLink(f"the link has a frame of {length} bytes, {MAX_FRAME} are the most")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return body


def _read(body: bytes) -> list[list[Any]]:
    try:
        messages = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BrokenLink(f"the link has a frame that is not JSON: {error}") from None
    if not isinstance(messages, list) or not all(
        isinstance(each, list) and each and isinstance(each[0], str) for each in messages
    ):
        raise BrokenLink("the link has a frame that is no list of messages")
    return messages
