"""Bytes on the link between a worker and its keeper: their format, and both ends of the socket.

Each frame is a length and a JSON list of messages. It is JSON because people can read it, `json`
writes a message in a few microseconds, and corrupt bytes cannot make the reader run code, as they
could with pickle. The keeper reads from its `Wire` and writes by an `Outbox`. The worker writes to
its `Wire` and reads from a `Listener`. No end ever waits for the other to read.
"""

from __future__ import annotations

import _socket
import contextlib
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: A message: its kind and its fields, all of them plain values.
Message = Sequence[Any]

#: The longest frame that is read, in bytes. A frame of ten messages has about ten thousand.
MAX_FRAME = 64 << 20
#: Bytes that either end reads at once.
CHUNK = 1 << 18
#: How long either end waits for more messages after the first, in seconds. To wake up for each
#: message would take CPU time from the worker's tasks.
GATHER_SECONDS = 0.005
#: When so many messages wait for the worker, log lines and statistics are left out. A task that
#: lets no other thread run may keep the worker from reading for hours.
MOST_WAITING = 20_000
#: Kinds of messages that may be left out.
_SPARE = frozenset({"log", "stats"})
#: The most messages in one frame: a reader loses few if the link breaks within a frame.
_BATCH = 100
#: From this size on, in bytes, a frame takes no further message. One that is sent again has a body
#: of up to 1 MiB.
_BATCH_BYTES = 1 << 20

_LENGTH = struct.Struct("<I")
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


class Wire:
    """One end of the link. Not thread-safe: its owner holds a lock around it.

    It uses `_socket`, which neither gevent nor eventlet replaces. So `send` returns at once, and
    no other greenlet runs during it while the owner holds its lock.

    Args:
        descriptor: The descriptor of a connected stream socket. The wire closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._reader = FrameReader()
        self._messages: deque[bytes] = deque()
        self._unsent = memoryview(b"")
        self.is_broken = False

    def fileno(self) -> int:
        """Return the descriptor; -1 after it was closed."""
        return self._socket.fileno()

    @property
    def waiting(self) -> int:
        """How many messages still wait to be sent. A partly sent frame counts as one."""
        return len(self._messages) + bool(self._unsent)

    def post(self, message: Message) -> None:
        """Have a message sent by the next `flush`.

        Raises:
            TypeError: A field is not a plain value. The message is not sent.
        """
        # Encoded here: if a message cannot be encoded, no other is lost with it.
        self._messages.append(write(message))

    def flush(self) -> bool:
        """Send as much as the socket takes now. Return whether that was all."""
        while not self.is_broken and (self._unsent or self._messages):
            if not self._unsent:
                batch = [self._messages.popleft()]
                size = len(batch[0])
                while self._messages and len(batch) < _BATCH and size < _BATCH_BYTES:
                    batch.append(self._messages.popleft())
                    size += len(batch[-1])
                self._unsent = memoryview(frame(batch))
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # The other end is gone. A new keeper gets everything it needs when it starts.
                self.is_broken = True
                return False
            self._unsent = self._unsent[sent:]
        return not self.is_broken

    def receive(self) -> list[list[Any]] | None:
        """Return the messages that have arrived; None if the other end is gone.

        Raises:
            BrokenLink: The data that arrived cannot be read.
        """
        messages: list[list[Any]] = []
        while True:
            try:
                data = self._socket.recv(CHUNK)
            except (BlockingIOError, InterruptedError):
                return messages
            except OSError:
                data = b""
            if not data:
                self.is_broken = True
                # Messages that came before the end still count.
                return messages or None
            messages += self._reader.feed(data)

    def close(self) -> None:
        """Close this end. Messages that were not sent are lost."""
        self._socket.close()
        self.is_broken = True


class Outbox:
    """Sends a keeper's messages over its wire, from any thread, without waiting for the worker."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lock = threading.RLock()
        self._left_out = 0

    def send(self, message: Message) -> None:
        """Send a message, now or by a later `push`."""
        with self._lock:
            if message[0] in _SPARE and self._wire.waiting >= MOST_WAITING:
                self._left_out += message[0] == "log"
                return
            self._wire.post(message)
            self._wire.flush()

    def push(self) -> None:
        """Send the messages that wait."""
        with self._lock:
            self._wire.flush()

    def take_left_out(self) -> int:
        """Return how many log lines were left out since the last report.

        While messages wait for the worker, return 0 and keep counting.
        """
        with self._lock:
            if self._wire.waiting:
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out


class Listener:
    """Waits for a keeper's messages. Its thread may be a greenlet, which lets others run meanwhile.

    Args:
        connection: A socket of Python's `socket` module, which gevent and eventlet replace. The
            listener closes it.
        seconds: How long `rest` waits for more, unless `listen` has set another timeout.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        connection.settimeout(seconds)
        self._socket = connection
        self._reader = FrameReader()

    def listen(self, seconds: float) -> list[list[Any]] | None:
        """Return the messages that arrive within `seconds`; None when the other end is closed.

        Raises:
            BrokenLink: The data that arrived cannot be read.
        """
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(CHUNK)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        return self._reader.feed(data) if data else None

    def rest(self) -> Iterator[list[Any]]:
        """Yield the messages that a keeper sent before it exited."""
        with contextlib.suppress(OSError, BrokenLink):
            while data := self._socket.recv(CHUNK):
                yield from self._reader.feed(data)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


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
