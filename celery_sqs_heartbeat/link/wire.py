"""One end of the link: writes without waiting, and reads what has arrived."""

from __future__ import annotations

import _socket
from collections import deque
from typing import Any, Protocol

from celery_sqs_heartbeat.link.frames import FrameReader, Message, frame, write

#: Bytes that either end reads at once.
CHUNK = 1 << 18
#: How long either end waits for more messages after the first, in seconds. To wake up for each
#: message would take CPU time from the worker's tasks.
GATHER_SECONDS = 0.005
#: The most messages in one frame: a reader loses few if the link breaks within a frame.
_BATCH = 100
#: From this size on, in bytes, a frame takes no further message. One that is sent again has a body
#: of up to 1 MiB.
_BATCH_BYTES = 1 << 20


class Sender(Protocol):
    """The part of `Wire` that a worker needs."""

    @property
    def waiting(self) -> int:
        """How many messages still wait to be sent."""

    @property
    def is_broken(self) -> bool:
        """Whether the other end is gone, or this end was closed."""

    def post(self, message: Message) -> None:
        """Have a message sent by the next `flush`."""

    def flush(self) -> bool:
        """Send as much as the socket takes now. Return whether that was all."""

    def close(self) -> None:
        """Close this end."""


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
