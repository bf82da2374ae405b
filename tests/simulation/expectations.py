"""What must happen in time, or in order: starts in a group, receives, deliveries, and releases."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases.lease import SQS, Goal, Lease
from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from tests.simulation.network import WAIT_SECONDS
from tests.simulation.profile import is_ordered
from tests.simulation.reception import LOOK_PART
from tests.simulation.truth import HANGING, MessageTruth

if TYPE_CHECKING:
    from tests.simulation.process import KeeperProcess
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

#: How many groups a world has, and how many messages may wait on a worker.
GROUPS, WAITING = (1, 3, 8, 30), (0, 3, 20)
#: The most that the workers are busy, as a share of the tasks that the groups let them run.
LOAD = 0.5
#: When nothing disturbs a world any more, some task ends within this many visibility timeouts plus
#: this many mean run times.
STANDSTILL = 40
#: How often it looks, in visibility timeouts, and in seconds: at least, and while something waits.
PART, LEAST, CLOSE = 0.05, 5.0, 3.0
#: How long a worker may leave a message at SQS without a poll, in seconds. On a slow link, a word
#: on its room takes 4 s, and a socket that is full another 12 s.
UNPOLLED = 40.0
#: A keeper releases a dead worker's messages after this many seconds at the latest.
RELEASED_AFTER = 2.0


class Order:
    """Draws the groups of a world, and judges each start against what SQS has deleted.

    Attributes:
        is_kept: Whether messages of a group run one after the other.
        waiting: How many messages of a worker may wait for another of their group.
    """

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} order")
        self.is_kept = is_ordered(kind)
        self._groups = self._random.choice(GROUPS)
        self.waiting = self._random.choice(WAITING) if self.is_kept else 0
        self._last_end: tuple[int, float] | None = None

    @property
    def most_waiting(self) -> int:
        """How many messages may wait on a worker. Beyond its room, one more per group and queue."""
        return self.waiting + self._groups * len(self._world.queues)

    def check_waiting(self, worker: str, count: int) -> None:
        """Check how many messages wait on a worker."""
        if count > self.most_waiting:
            self._world.fail(f"{count} messages wait on {worker}")

    def group(self) -> str:
        """Draw the group of the next message."""
        return str(self._random.randrange(self._groups))

    def tasks_at_once(self) -> float:
        """Return how many tasks should run at a time, on average."""
        profile = self._world.profile
        slots = profile.workers * profile.concurrency
        return LOAD * min(slots, self._groups) if self.is_kept else 0.6 * slots

    def calls_a_period(self) -> int:
        """Return how many calls extend all of a worker's leases, including the waiting ones."""
        held = self._world.profile.prefetch + self.waiting
        return math.ceil(held / SQS.most_entries) if self.is_kept else 1

    def check_start(self, worker: str, truth: MessageTruth) -> None:
        """Check that SQS has deleted every message ahead of the one that begins.

        A dead letter has also left its group.
        """
        own = truth.message
        if not self.is_kept or own is None:
            return
        ahead = [
            each.message_id
            for each in truth.queue.messages.values()
            if each.group_id == own.group_id and each.sequence_number < own.sequence_number
        ]
        if ahead:
            self._world.fail(
                f"9: {truth.message_id} begins on {worker}, and {', '.join(ahead[:3])} of its "
                "group before it is not deleted"
            )

    def check_progress(self) -> None:
        """Check at each step of the quiet time at the end that no group stops for long."""
        left = sum(len(queue.messages) for queue in self._world.queues)
        ends = self._world.tally.executions - left
        now, profile = self._world.clock(), self._world.profile
        if self._last_end is None or ends != self._last_end[0]:
            self._last_end = ends, now
        # A worker whose poll has lost its answer receives nothing while the simulated poll lasts.
        step = profile.terms.visibility_timeout + profile.mean_task
        longest = max(STANDSTILL * step, 2 * WAIT_SECONDS)
        if self.is_kept and now - self._last_end[1] > longest:
            self._world.fail(f"9: groups are stalled, and have {left} messages")


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


def expect_releases(
    world: World, worker: SimulatedWorker, process: KeeperProcess, leases: Iterable[Lease]
) -> None:
    """Schedule a check that a keeper releases the messages that its worker held when it died."""
    # Before its last receive, a message waits for the end of open polls.
    held = [
        (lease.message_id, lease.receipt_handle)
        for lease in leases
        if lease.goal is Goal.HOLD and not lease.has_few_receives
    ]
    since = world.clock()

    def check() -> None:
        if not process.is_up or worker.asleep_until > since:
            return
        for message_id, handle in held:
            _check(message_id, handle)

    def _check(message_id: str, handle: str) -> None:
        truth = world.truth[message_id]
        message = truth.message
        if message is None or message.handle != handle or message.visible_at <= world.clock():
            return
        calls = process.calls
        is_explained = (
            # We can't know whether it is still ours.
            message_id in process.given_up
            # Its receive was in a frame that was written only in part.
            or not process.knows(handle)
            # Not answered yet, or behind a call that is not answered.
            or calls.has_tried_to_release(handle)
            # The first of a group is released last. The others are checked like any message.
            or process.releases_others_first(handle)
            or HANGING in truth.excuses
            # The next call of its queue waits for a while.
            or truth.queue.url in calls.refused
        )
        if is_explained:
            return
        world.fail(f"10: {message_id} is not released, but its worker {worker.name} is dead")

    world.clock.at(since + RELEASED_AFTER, check)
