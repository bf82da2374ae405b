"""A second queue whose calls all hang for a while. The first queue must not be affected."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Call
from celery_sqs_heartbeat.leases.events import MOST_HANGING
from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from tests.simulation.hangs import Hang
from tests.simulation.truth import MessageTruth
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.world import World

#: One world in so many has two queues.
EVERY, REST = 4, 3
#: For how long calls hang, in visibility timeouts.
LASTS = (0.5, 2.0, 10.0, 40.0)
#: How often that happens while a world lasts.
OUTAGES = 3
#: How often the calls of an outage never return, even when it has ended.
ENDLESS = 0.3
#: Why a message of the second queue may run again.
EXCUSE = "its queue hangs"


def has_two_queues(seed: int) -> bool:
    """Return whether the worlds of a seed have a second queue."""
    return seed % EVERY == REST


class Outage:
    """Chooses the queue of each message, and when the second one's calls hang."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = random.Random(f"{seed} outage")
        self._until = self._explains_until = 0.0
        self._is_endless = False
        if len(world.queues) > 1:
            self._plan()

    def choose_queue(self) -> SimulatedQueue:
        """Return the queue to which the next message is sent."""
        queues = self._world.queues
        return queues[0] if len(queues) == 1 else self._random.choice(queues)

    def excuse(self, truth: MessageTruth) -> None:
        """Note on a message whether its queue hangs. Such a message may not get any call at all."""
        if self._world.clock() < self._explains_until and truth.queue is not self._world.queues[0]:
            truth.excuses.add(EXCUSE)

    def note_stuck(self, keeper: ThreadKeeper, board: Board) -> None:
        """Note the messages for which a keeper makes no calls, because too many calls hang."""
        if keeper.health.hanging >= MOST_HANGING:
            for lease in board.leases():
                if keeper.is_stuck(lease.queue_url):
                    self._world.truth[lease.message_id].excuses.add(EXCUSE)

    def draw(self, worker: str, call: Call) -> Hang | None:
        """Return how a call hangs until the outage ends, or None."""
        world = self._world
        left = self._until - world.clock()
        if left <= 0 or call.queue_url == world.queues[0].url:
            return None
        world.disturb(worker, "a call of a queue that hangs")
        # The call is repeated once it is given up.
        world.tally.visibility_bound += 1
        return Hang(there=math.inf, fails_after=math.inf if self._is_endless else left)

    def end(self) -> None:
        """Let no more calls hang."""
        self._until = 0.0

    def _plan(self) -> None:
        wait = self._random.expovariate(OUTAGES / self._world.profile.seconds)
        self._world.clock.at(self._world.clock() + wait, self._begin)

    def _begin(self) -> None:
        world = self._world
        if world.is_over:
            return
        self._plan()
        world.disturb("queue", "one of two queues hangs")
        lasts = self._random.choice(LASTS) * world.profile.terms.visibility_timeout
        self._until = max(self._until, world.clock() + lasts)
        self._is_endless = self._random.random() < ENDLESS
        self._explains_until = max(self._explains_until, self._until)
        for truth in world.truth.values():
            self.excuse(truth)
