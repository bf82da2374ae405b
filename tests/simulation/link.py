"""What connects a worker and its keeper, on the simulated clock: their link, the sockets on which
messages are handed over, and the channel that takes them, with the real feed and prefetch count.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.message import Message as SqsMessage
from celery_sqs_heartbeat.leases.received_as import RecentEnds
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import _PACKET, _ROOM, Inlet, _packed
from celery_sqs_heartbeat.link.frames import LineReader, Message, write
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.feed import Feed
from celery_sqs_heartbeat.transport.settling import QoS
from tests.simulation.network import LONGEST_POLL

if TYPE_CHECKING:
    from tests.simulation.apart import Apart
    from tests.simulation.process import KeeperProcess
    from tests.simulation.worker import SimulatedWorker

#: How often a socket is full although the link is not slow, and how often while it is.
FULL, FULL_IF_SLOW = 0.01, 0.3


class Line:
    """One direction of a link.

    Args:
        deliver: Receives the messages that have arrived whole.
        delay: Returns how long a frame that is sent now takes, in seconds.

    Attributes:
        arrives_at: When the last frame that was sent arrives.
    """

    def __init__(
        self,
        clock: FakeClock,
        deliver: Callable[[list[list[Any]]], None],
        delay: Callable[[], float],
        opens_at: float = 0.0,
    ) -> None:
        self._clock = clock
        self._deliver = deliver
        self._delay = delay
        self._reader = LineReader()
        self._under_way: deque[bytes] = deque()
        self.arrives_at = opens_at

    def send(self, data: bytes) -> None:
        """Send a frame, or the part of it that was written."""
        self.arrives_at = max(self.arrives_at, self._clock() + self._delay())
        self._under_way.append(data)
        self._clock.at(self.arrives_at, self._arrive)

    def drain(self) -> list[list[Any]]:
        """Return the complete messages that are still under way. Their sender has ended."""
        data = b"".join(self._under_way)
        self._under_way.clear()
        return self._reader.feed(data)

    def lose(self) -> None:
        """Lose all frames that are under way: no one reads them any more."""
        self._under_way.clear()

    def lose_part(self, part: float) -> None:
        """Cut the last frame under way: its sender died while writing it."""
        if self._under_way:
            last = self._under_way.pop()
            self._under_way.append(last[: int(part * len(last))])

    def _arrive(self) -> None:
        if self._under_way:
            self._deliver(self._reader.feed(self._under_way.popleft()))


class LineWire:
    """The part of a `Wire` that a keeper's worker uses, over a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._messages: list[Message] = []
        self.is_broken = False

    def post(self, message: Message) -> None:
        """Queue a message, which the next `flush` sends."""
        self._messages.append(message)

    def flush(self) -> bool:
        """Send all posted messages in one frame."""
        if self._messages and not self.is_broken:
            self._line.send(b"".join(map(write, self._messages)))
            self._messages.clear()
        return not self.is_broken

    def close(self) -> None:
        """Close this end."""
        self.is_broken = True


class Deliveries:
    """The pair of sockets of one worker's process. It is used like the worker's end.

    Args:
        owner: Looks after the keepers.

    Attributes:
        opens_at: When the present keeper begins to read.
    """

    def __init__(self, owner: Apart, generator: random.Random) -> None:
        self._owner = owner
        self._clock = owner.worker.world.clock
        self._random = generator
        self._packets: deque[bytes] = deque()
        self._is_noticed = True
        self._rooms_at = 0.0
        self.opens_at = 0.0

    def is_full(self) -> bool:
        """Draw whether a socket is full."""
        return self._random.random() < (FULL_IF_SLOW if self._owner.is_slow else FULL)

    def put(self, keeper: int, data: bytes, *, is_last: bool) -> None:
        """Send a packet to the worker."""
        self._packets.append(_PACKET.pack(keeper, is_last) + data)
        if self._is_noticed:
            self._is_noticed = False
            self._clock.at(self._clock() + self._owner.travel(), self._notice)

    def later(self, job: Callable[[], None]) -> None:
        """Run a job when a socket that was full may have space."""
        self._clock.at(self._clock() + self._random.uniform(1.0, 3.0) * self._owner.travel(), job)

    def _notice(self) -> None:
        self._is_noticed = True
        if self._packets:
            self._owner.note_arrival()

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
        at = self._clock() + self._owner.travel()
        self._rooms_at = max(self._rooms_at, at, self.opens_at)
        # The keeper of then learns of it.
        room = _ROOM.unpack(packet)
        self._clock.at(self._rooms_at, lambda: self._owner.process.take_room(*room))

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


class SimulatedHeartbeat(Heartbeat):
    """The heartbeat of a worker's process. Its pool runs tasks, or a consumer step has no pool."""

    def __init__(self, worker: SimulatedWorker, keeper: LinkedKeeper) -> None:
        world = worker.world
        settings, queues = world.attributes.known_to(worker)
        super().__init__(keeper=keeper, settings=settings, queues=queues, clients=Mock())
        self._size = float(world.profile.concurrency) if world.is_paced else math.inf

    def pool_size(self, queues: Iterable[str]) -> float:
        """Return how many tasks run at once; infinity in a consumer step."""
        return self._size


@dataclass(eq=False)
class Delivered:
    """A message that has reached its consumer."""

    channel: SimulatedChannel
    message: SqsMessage
    lease: Lease

    @property
    def handle(self) -> str:
        """Its receipt handle."""
        return str(self.message["ReceiptHandle"])


class SimulatedChannel:
    """What the feed and the deliverer use of a channel.

    Args:
        wake: Lets the worker deliver what has arrived.
    """

    connection = SimpleNamespace(polling_interval=0)
    wait_time_seconds = LONGEST_POLL
    lost_errors = ()
    #: kombu restores nothing when a world is discarded.
    do_restore = False

    def __init__(
        self, worker: SimulatedWorker, heartbeat: Heartbeat, wake: Callable[[], object]
    ) -> None:
        self.heartbeat = heartbeat
        self.closed = False
        self._worker = worker
        self._queues = [queue.url for queue in worker.world.queues]
        channel: Any = self
        self.qos = QoS(channel, worker.world.profile.prefetch)
        self.feed = Feed(channel, Deliverer(channel), wake)
        self.feed._ends = _Ends(worker.now)

    @property
    def held(self) -> int:
        """How many of its messages the worker has."""
        return len(self.feed._waiting) + len(self.qos._delivered) - len(self.qos._dirty)

    @property
    def room(self) -> float:
        """How many more messages could begin, or would wait for the pool of a consumer step."""
        worker = self._worker
        pool = self.heartbeat.pool_size(()) - len(worker.queued) - len(worker.running)
        return min(self.qos.prefetch_count - self.held, pool - len(self.feed._waiting))

    @property
    def is_stuck(self) -> bool:
        """Whether a message could be delivered and is not."""
        return bool(self.feed._waiting) and self.feed._deliverable > 0

    @staticmethod
    def wanted_attributes() -> dict[str, list[str]]:
        """Return no attributes: a simulated poll asks for all."""
        return {}

    def leased_queues(self) -> list[str]:
        """Return the queues that it consumes from."""
        return self._queues

    def queue_url(self, queue: str) -> str:
        """Return a queue's URL, which is its name here."""
        return queue

    def consumer(self, queue: str) -> Callable[[SqsMessage], object] | None:
        """Return what takes the messages of a queue."""
        return self._take if queue in self._queues else None

    def decode(self, message: SqsMessage, _queue: str) -> SqsMessage:
        """Return a message unchanged."""
        return message

    def takes_slot(self, delivery_tag: str) -> bool:
        """Return whether a message has a prefetch slot."""
        return delivery_tag in self.qos._delivered

    def give_up(self, _tag: str, error: Exception) -> None:
        """Raise the error: every message can be delivered here."""
        raise error

    def close(self) -> None:
        """Cancel its consumers, and receive no more."""
        while self._queues:
            self.feed.cancel(self._queues.pop(0))
        self.closed = True
        self.feed.stop()

    def _take(self, message: SqsMessage) -> None:
        handle = str(message["ReceiptHandle"])
        # The deliverer has just found it.
        lease: Any = self.heartbeat.keeper.find(handle)
        delivered = Delivered(self, message, lease)
        self.qos.append(delivered, handle)
        self.heartbeat.in_pool[handle] = delivered
        self._worker.take(delivered)


class _Ends(RecentEnds):
    """Counts by a worker's clock, not by the machine's."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now

    def note(self, now: float) -> None:
        super().note(self._now())

    def count(self, now: float) -> int:
        return super().count(self._now())
