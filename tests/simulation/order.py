"""Message groups whose order is kept: which messages are sent to them, and which may begin."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases.service import SQS
from tests.simulation.polls import WAIT_SECONDS
from tests.simulation.profile import is_ordered
from tests.simulation.truth import MessageTruth

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How many groups a world has, and how many messages may wait on a worker.
GROUPS, WAITING = (1, 3, 8, 30), (0, 3, 20)
#: The most that the workers are busy, as a share of the tasks that the groups let them run.
LOAD = 0.5
#: When nothing disturbs a world any more, some task ends within this many visibility timeouts plus
#: this many mean run times.
STANDSTILL = 40


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
        return math.ceil(held / SQS.most_changed) if self.is_kept else 1

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
