"""The sockets on which keepers hand messages over to their worker, and learn its channels' room.

They outlive keepers: what a keeper has sent is there, whenever its worker reads it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.link.deliveries import _PACKET, _ROOM, Inlet, _packed
from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.testing import FakeClock

if TYPE_CHECKING:
    from tests.simulation.process import KeeperProcess

#: How often a socket is full although the link is not slow, and how often while it is.
FULL, FULL_IF_SLOW = 0.01, 0.3


class Deliveries:
    """The pair of sockets of one worker's process. It is used like the worker's end.

    Args:
        delay: Returns how long it takes until the other end notices what is sent now, in seconds.
        is_slow: Returns whether the link is slow.
        on_arrival: Called when the worker notices that messages have arrived.
        on_room: Called when a keeper can learn of room. Its arguments are those of `Inlet.allow`.

    Attributes:
        opens_at: When the present keeper begins to read.
    """

    def __init__(
        self,
        clock: FakeClock,
        generator: random.Random,
        delay: Callable[[], float],
        is_slow: Callable[[], bool],
        on_arrival: Callable[[], None],
        on_room: Callable[[int, int, int, int], None],
    ) -> None:
        self._clock = clock
        self._random = generator
        self._delay = delay
        self._is_slow = is_slow
        self._on_arrival = on_arrival
        self._on_room = on_room
        self._packets: deque[bytes] = deque()
        self._is_noticed = True
        self._rooms_at = 0.0
        self.opens_at = 0.0

    def is_full(self) -> bool:
        """Draw whether a socket is full."""
        return self._random.random() < (FULL_IF_SLOW if self._is_slow() else FULL)

    def put(self, keeper: int, data: bytes, *, is_last: bool) -> None:
        """Send a packet to the worker."""
        self._packets.append(_PACKET.pack(keeper, is_last) + data)
        if self._is_noticed:
            self._is_noticed = False
            self._clock.at(self._clock() + self._delay(), self._notice)

    def later(self, job: Callable[[], None]) -> None:
        """Run a job when a socket that was full may have space."""
        self._clock.at(self._clock() + self._random.uniform(1.0, 3.0) * self._delay(), job)

    def _notice(self) -> None:
        self._is_noticed = True
        if self._packets:
            self._on_arrival()

    # -- What an `Inlet` calls ----------------------------------------------------------------

    def recv(self, _size: int) -> bytes:
        """Return a packet, as a socket does that does not block."""
        if not self._packets:
            raise BlockingIOError
        return self._packets.popleft()

    def send(self, packet: bytes) -> None:
        """Send the room of a channel to the keepers' end."""
        if self.is_full():
            raise BlockingIOError
        self._rooms_at = max(self._rooms_at, self._clock() + self._delay(), self.opens_at)
        self._clock.at(self._rooms_at, partial(self._on_room, *_ROOM.unpack(packet)))

    def fileno(self) -> int:
        """Return no descriptor."""
        return -1

    def close(self) -> None:
        """Do nothing."""


class SimulatedInlet(Inlet):
    """The real `Inlet` on a simulated socket."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._socket = deliveries
        self._keeper = 0
        self._data = bytearray()


class SimulatedOutlet:
    """A keeper's end: an `Outlet` without threads, whose process may die while it sends."""

    def __init__(self, process: KeeperProcess, deliveries: Deliveries) -> None:
        self._process = process
        self._deliveries = deliveries
        self._left: deque[bytes] = deque()

    def send(self, messages: Sequence[tuple[Message, Mapping[str, Any]]]) -> bool:
        """Send messages, each with its header. Return whether the socket has taken all of them."""
        self._left.append(b"".join(_packed(header, message) for header, message in messages))
        if len(self._left) > 1:
            return False
        if self._deliveries.is_full():
            self._deliveries.later(partial(self._process.run, self._send_rest))
            return False
        self._put()
        return True

    def _send_rest(self) -> None:
        while self._left:
            self._put()

    def _put(self) -> None:
        data, put = self._left[0], partial(self._deliveries.put, self._process.number)
        self._process.step(lambda: put(data[: len(data) // 2], is_last=False))
        put(data, is_last=True)
        self._left.popleft()
