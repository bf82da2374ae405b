"""Messages that wait although nothing holds them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from tests.simulation.polls import WAIT_SECONDS
from tests.simulation.reception import LOOK_PART

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

#: How often it looks, in visibility timeouts, and in seconds: at least, and while something waits.
PART, LEAST, CLOSE = 0.05, 5.0, 3.0
#: How long a worker may leave a message at SQS without a poll, in seconds. On a slow link, a word
#: on its room takes 4 s, and a socket that is full another 12 s.
UNPOLLED = 40.0


class Waiting:
    """Looks for messages that a worker could receive, or deliver, and does not."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: By worker, and by queue or for all of its deliveries: since when one waits.
        self._since: dict[tuple[str, str], float] = {}
        self._look()

    def note_poll(self, worker: str, url: str) -> None:
        """Note that a worker begins or ends a poll."""
        self._since.pop((worker, url), None)

    def _look(self) -> None:
        world = self._world
        for worker in world.workers:
            self._note(worker, "", worker.keeping.is_stuck and not _is_away(worker), 0.0)
            for queue in world.queues:
                self._note(worker, queue.url, self._waits(worker, queue), self._longest(worker))
        timeout = world.profile.terms.visibility_timeout
        wait = CLOSE if self._since else max(LEAST, PART * timeout)
        world.clock.at(world.clock() + wait, self._look)

    def _note(self, worker: SimulatedWorker, url: str, waits: bool, longest: float) -> None:
        world = self._world
        if not waits:
            self._since.pop((worker.name, url), None)
        elif world.clock() - self._since.setdefault((worker.name, url), world.clock()) > longest:
            what = f"has room, and receives nothing from {url}" if url else "does not deliver"
            world.fail(f"liveness: {worker.name} {what}, and messages wait")

    def _waits(self, worker: SimulatedWorker, queue: SimulatedQueue) -> bool:
        """Return whether nothing holds back the messages of a queue, which has some."""
        keeping = worker.keeping
        if _is_away(worker) or keeping.is_away or keeping.room <= 0:
            return False
        now = self._world.clock()
        if not queue.is_fifo:
            return queue.visible(now) > 0
        # The first of each group that has none in flight.
        return any(True for _ in queue.available(now))

    def _longest(self, worker: SimulatedWorker) -> float:
        """Return how long that may last, in seconds."""
        profile = self._world.profile
        longest = UNPOLLED
        if self._world.order.is_kept:
            # A process looks again whether messages of its groups have left their room.
            longest += LOOK_PART * profile.terms.visibility_timeout
        if worker.keeping.has_polls:
            # Its answer is lost, or it has the room that another queue's poll would need.
            longest += WAIT_SECONDS + profile.call_timeout
        return longest


def _is_away(worker: SimulatedWorker) -> bool:
    is_awake = worker.world.clock() >= worker.paused_until
    return not worker.is_up or worker.is_stopping or not is_awake
