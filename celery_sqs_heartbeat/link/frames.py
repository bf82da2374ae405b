"""The format of the link: each frame is a length and a JSON list of messages.

It is JSON because people can read it, `json` writes a message in a few microseconds, and corrupt
bytes cannot make the reader run code, as they could with pickle.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: A message: its kind and its fields, all of them plain values.
Message = Sequence[Any]

_LENGTH = struct.Struct("<I")
#: The longest frame that is read, in bytes. A frame of ten messages has about ten thousand.
MAX_FRAME = 64 << 20

_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class BrokenLink(SqsHeartbeatError):
    """The link delivered something unreadable: the other end is broken or of another version."""


def write(message: Message) -> bytes:
    """Return a message as a frame contains it.

    Raises:
        TypeError: A field is not a plain value.
    """
    return _write(message).encode()


def frame(written: Sequence[bytes]) -> bytes:
    """Return written messages as one frame."""
    body = b"[" + b",".join(written) + b"]"
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Puts frames together from the pieces that arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[list[Any]]:
        """Add bytes. Return the messages that they complete, in order.

        Raises:
            BrokenLink: The bytes are not messages.
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
            raise BrokenLink(f"the link has a frame of {length} bytes; the limit is {MAX_FRAME}")
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
        raise BrokenLink("the link has a frame that is not a list of messages")
    return messages
