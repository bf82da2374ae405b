"""A keeper's messages to its worker, and the worker's room for them, on a socket of their own.

The link's own socket would not do. The attendant reads that one, and each message would have to
pass from its thread to the consumer's. In a solo pool no one takes messages while a task runs, but
what the keeper reports must arrive. And the keeper gathers what it reads from the link, while room
for a message must not wait.

The socket outlives keepers, so an event loop reads the same descriptor as long as it lives. It
keeps packets whole. Each says which keeper sends it, or is to read it: what a dead keeper did not
finish, or did not read, is dropped. A header is a line of JSON, and the body follows unchanged.
"""

from __future__ import annotations

import _socket
import base64
import errno
import json
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from celery_sqs_heartbeat.leases.events import least_beside
from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.link.watching import wait_readable, wait_writable

#: The number of the keeper that sends, and whether the packet ends what it sends together.
_PACKET = struct.Struct("<I?")
#: The number of the keeper, the channel, how many messages it may get, its prefetch count.
_ROOM = struct.Struct("<IIqI")
#: The longest packet, in bytes. A socket's buffer takes a few of them.
PACKET_BYTES = 1 << 16
#: How many bytes the worker reads before it does anything else.
MOST_READ = 1 << 18
#: Marks binary values, which JSON does not have.
_BINARY = "$binary"
_MARKED = f'"{_BINARY}"'.encode()
#: Kinds of sockets that keep packets whole. macOS lacks the first.
_KINDS = (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM)


class Credit:
    """Counts what channels got, and says what more they may get. Not thread-safe.

    The number that is said counts from the keeper's begin. It never depends on what is under way,
    so a word that is late or repeated does no harm.
    """

    def __init__(self, inlet: Inlet) -> None:
        self._inlet = inlet
        self._keeper = 0
        # By channel: what it may get in all and its prefetch count, and both as the keeper knows.
        self._rooms: dict[int, tuple[int, int]] = {}
        self._said: dict[int, tuple[int, int]] = {}
        # By channel: what it got from the keeper.
        self._got = Counter[int]()

    def note(self, channel: int) -> None:
        """Note that a channel got a message."""
        self._got[channel] += 1

    def allow(self, channel: int, free: int, prefetch_count: int) -> None:
        """Let a channel get so many more messages than it got. It may be less than before.

        This is said at once if it may get fewer than it was said, or so many more that another poll
        can begin, or if all that was said is spent, or all is free. Else the next `say` says it.

        Args:
            prefetch_count: How many messages it may hold at once; 0 without a limit.
        """
        got = self._got[channel]
        said, _ = self._said.get(channel, (0, 0))
        self._rooms[channel] = (got + free, prefetch_count)
        count = prefetch_count or free
        more = got + free - said
        if more < 0 or more >= least_beside(count) or said == got or free >= count:
            self.say()

    def say(self) -> None:
        """Say what has changed."""
        for channel, room in self._rooms.items():
            is_new = self._said.get(channel) != room
            if is_new and self._inlet.allow(self._keeper, channel, *room):
                self._said[channel] = room

    def begin(self) -> None:
        """Begin with another keeper. What the last one has handed over must be noted by now."""
        self._keeper += 1
        for channel, (limit, prefetch_count) in self._rooms.items():
            self._rooms[channel] = (limit - self._got[channel], prefetch_count)
        self._got.clear()
        self._said.clear()
        self.say()

    def end(self, channel: int) -> None:
        """Forget a channel that was closed."""
        self._rooms.pop(channel, None)
        self._said.pop(channel, None)


def delivery_sockets() -> tuple[socket.socket, socket.socket]:
    """Return the worker's end and the keeper's.

    Raises:
        OSError: The system has no free file descriptors.
    """
    first, second = _KINDS
    try:
        pair = socket.socketpair(socket.AF_UNIX, first)
    except OSError:
        pair = socket.socketpair(socket.AF_UNIX, second)
    for each in pair:
        # By default, some systems refuse packets of this size.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_BYTES)
    return pair


class Outlet:
    """The keeper's end. Any thread may send; none waits until the worker reads.

    Args:
        descriptor: The descriptor of the socket, which the outlet closes.
        keeper: The keeper's number.
    """

    def __init__(self, descriptor: int, keeper: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._keeper = keeper
        self._lock = threading.Lock()
        self._packets: deque[bytes] = deque()
        self._has_thread = self._is_closed = False

    def send(self, messages: Sequence[tuple[Message, Mapping[str, Any]]]) -> bool:
        """Send messages, each with its header. Return whether the socket has taken all of them."""
        data = b"".join(_packed(header, message) for header, message in messages)
        size = PACKET_BYTES - _PACKET.size
        starts = range(0, len(data), size)
        packets = [
            _PACKET.pack(self._keeper, start + size >= len(data)) + data[start : start + size]
            for start in starts
        ]
        with self._lock:
            self._packets += packets
            if self._flush():
                return True
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(
                    target=self._send_rest, name="sqs-heartbeat-deliveries", daemon=True
                ).start()
        return False

    def read_rooms(self, take: Callable[[int, int, int], object]) -> bool:
        """Wait for the worker's word on its channels' room. Return False at the end.

        Args:
            take: Is called with a channel, how many messages it may get in all, and its prefetch
                count: with the last word on each channel.
        """
        wait_readable([self._socket.fileno()], 1.0)
        rooms = {}
        is_over = self._is_closed
        while not is_over:
            try:
                packet = self._socket.recv(_ROOM.size)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                packet = b""
            is_over = len(packet) != _ROOM.size
            if not is_over:
                keeper, channel, *room = _ROOM.unpack(packet)
                if keeper == self._keeper:
                    rooms[channel] = room
        for channel, room in rooms.items():
            take(channel, *room)
        return not is_over

    def close(self) -> None:
        """Read and send no more. The descriptor stays open until no thread uses it."""
        self._is_closed = True
        with self._lock:
            self._packets.clear()

    def _flush(self) -> bool:
        while self._packets:
            try:
                self._socket.send(self._packets[0])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    # What macOS says of a full socket.
                    return False
                # The worker is gone. The keeper finds out, and releases what it held.
                self._packets.clear()
                return True
            self._packets.popleft()
        return True

    def _send_rest(self) -> None:
        is_sent = False
        while not is_sent:
            wait_writable(self._socket.fileno(), 1.0)
            with self._lock:
                is_sent = self._flush()
                self._has_thread = not is_sent


class Inlet:
    """The worker's end. Not thread-safe: its owner holds a lock around it.

    It uses `_socket`, which neither gevent nor eventlet replaces: a read returns at once, and no
    other greenlet runs during it.

    Args:
        descriptor: The descriptor of the socket, which the inlet closes.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._keeper = 0
        self._data = bytearray()

    def fileno(self) -> int:
        """Return the descriptor; -1 after it was closed."""
        return self._socket.fileno()

    def read(self, most: float = MOST_READ) -> list[tuple[list[Any], dict[str, Any]]]:
        """Return messages that have arrived, each with its header. More may be left.

        Args:
            most: How many bytes to read about.
        """
        found: list[tuple[list[Any], dict[str, Any]]] = []
        size = 0
        while size < most:
            try:
                packet = self._socket.recv(PACKET_BYTES)
            except OSError:
                # Nothing is left, or the socket is closed.
                break
            if not packet:
                break
            size += len(packet)
            keeper, is_last = _PACKET.unpack_from(packet)
            if keeper != self._keeper:
                self._keeper = keeper
                self._data.clear()
            self._data += memoryview(packet)[_PACKET.size :]
            if is_last:
                found += _unpacked(bytes(self._data))
                self._data.clear()
        return found

    def allow(self, keeper: int, channel: int, limit: int, prefetch_count: int) -> bool:
        """Send the room of a channel to a keeper. Return False if it must be sent again later."""
        try:
            self._socket.send(_ROOM.pack(keeper, channel, limit, prefetch_count))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            # Closed: no keeper follows.
            return True
        return True

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def _packed(header: Message, message: Mapping[str, Any]) -> bytes:
    """Return a message for a packet: its body is neither copied into JSON nor read there."""
    body = message.get("Body")
    raw = body.encode(errors="surrogatepass") if isinstance(body, str) else b""
    rest = {name: each for name, each in message.items() if name != "Body"} if raw else message
    line = json.dumps([*header, rest, len(raw)], default=_marked, separators=(",", ":"))
    return line.encode() + b"\n" + raw


def _unpacked(data: bytes) -> list[tuple[list[Any], dict[str, Any]]]:
    found = []
    at = 0
    while at < len(data):
        begin = data.index(b"\n", at) + 1
        line = data[at:begin]
        unmark = _unmarked if _MARKED in line else None
        *header, message, size = json.loads(line, object_hook=unmark)
        at = begin + size
        if size:
            message["Body"] = data[begin:at].decode(errors="surrogatepass")
        found.append((header, message))
    return found


def _marked(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {_BINARY: base64.b64encode(value).decode()}
    return str(value)


def _unmarked(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[_BINARY]) if value.keys() == {_BINARY} else value
