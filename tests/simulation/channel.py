"""A channel of a simulated worker, with the real feed, deliverer and prefetch count."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.message import Message
from celery_sqs_heartbeat.leases.recent import RecentEnds
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.feed import Feed
from celery_sqs_heartbeat.transport.settling import QoS
from tests.simulation.polls import LONGEST_POLL

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker


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
    message: Message
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

    def consumer(self, queue: str) -> Callable[[Message], object] | None:
        """Return what takes the messages of a queue."""
        return self._take if queue in self._queues else None

    def decode(self, message: Message, _queue: str) -> Message:
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

    def _take(self, message: Message) -> None:
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
