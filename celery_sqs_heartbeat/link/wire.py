"""One end of the link: writes without waiting, and reads what has come."""

from __future__ import annotations

import _socket
from collections import deque
from typing import Any, Protocol

from celery_sqs_heartbeat.link.frames import FrameReader, Message, frame, write

#: Bytes that either end reads at once.
CHUNK = 1 << 18
#: How long either end waits for more once the other has said something, in seconds: waking for each
#: message would take CPU that the worker's tasks want.
GATHER_SECONDS = 0.005
#: Messages that are written as one frame at most: so a reader that is cut off loses few.
_BATCH = 100


class Sender(Protocol):
    """What a worker needs of its end of the link; see `Wire`."""

    @property
    def waiting(self) -> int:
        """How many messages the other end has not taken yet."""

    @property
    def is_broken(self) -> bool:
        """Whether the other end is gone."""

    def post(self, message: Message) -> None:
        """Have a message sent by the next `flush`."""

    def flush(self) -> bool:
        """Send what the other end takes now; return whether that is all."""

    def close(self) -> None:
        """Close this end."""


class Wire:
    """One end of the link. Not thread-safe: its owner holds a lock around it.

    On `_socket`, which neither gevent nor eventlet replaces: `send` returns at once, and no
    greenlet switches in it while the owner holds its lock.

    Args:
        descriptor: Of a connected stream socket, which belongs to this from now on.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._reader = FrameReader()
        self._messages: deque[bytes] = deque()
        self._unsent = memoryview(b"")
        self.is_broken = False

    def fileno(self) -> int:
        """Return the descriptor; -1 when it is closed."""
        return self._socket.fileno()

    @property
    def waiting(self) -> int:
        """How many messages the other end has not taken yet, as far as is known here."""
        return len(self._messages) + bool(self._unsent)

    def post(self, message: Message) -> None:
        """Have a message sent by the next `flush`.

        Raises:
            TypeError: A field is no plain value. It is not sent.
        """
        # Written here, so that one that can't be takes no others with it.
        self._messages.append(write(message))

    def flush(self) -> bool:
        """Send what the other end takes now; return whether that is all."""
        while not self.is_broken and (self._unsent or self._messages):
            if not self._unsent:
                count = min(_BATCH, len(self._messages))
                batch = [self._messages.popleft() for _ in range(count)]
                self._unsent = memoryview(frame(batch))
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # The other end is gone. What it did not take is sent to its successor anew.
                self.is_broken = True
                return False
            self._unsent = self._unsent[sent:]
        return not self.is_broken

    def receive(self) -> list[list[Any]] | None:
        """Return the messages that have come, maybe none; None where the other end is gone.

        Raises:
            BrokenLink: What has come can't be read.
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
                # Those that came before the end count.
                return messages or None
            messages += self._reader.feed(data)

    def close(self) -> None:
        """Close this end. What was not sent is lost."""
        self._socket.close()
        self.is_broken = True
