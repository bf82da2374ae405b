"""Calls that hang, wait or are held: what the network, a machine and a server do to them."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import MOST_HANGING, Call, CallKind
from celery_sqs_heartbeat.leases.policy import call_patience
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT
from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from tests.simulation.network import Hang
from tests.simulation.profile import meets
from tests.simulation.truth import HANGING, MessageTruth
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The threshold of leases that begin before the attributes are known, in seconds.
UNREAD_THRESHOLD = DEFAULT_VISIBILITY_TIMEOUT / 3


class Hangs:
    """Draws which calls no timeout ends: name resolution, credentials, answers that drip."""

    #: How often a call hangs, and how often one that repeats one that failed.
    RATE, RATE_AGAIN = 0.004, 0.2
    #: For how long, in visibility timeouts, if its answer comes after all.
    LASTS = (0.3, 0.8, 1.5, 4.0)

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = random.Random(f"{seed} hangs")
        #: Until when a worker uses connections that a firewall has forgotten.
        self._forgotten: dict[str, float] = {}

    def draw(self, worker: str, call: Call) -> Hang | None:
        """Return how a call hangs, or None for most."""
        world = self._world
        is_spared = world.profile.is_calm and (
            _may_cost_a_lease(call) or (world.is_apart and self._is_late(call))
        )
        if world.is_over or is_spared:
            return None
        timeout = world.profile.call_timeout
        if world.clock() < self._forgotten.get(worker, 0.0):
            return Hang(there=math.inf, fails_after=timeout)
        is_again = any(entry.lease.attempts == 1 for entry in call.entries)
        if self._random.random() >= (self.RATE_AGAIN if is_again else self.RATE):
            return None
        # The call is repeated once it is given up.
        world.tally.visibility_bound += 1
        seconds = self._random.choice(self.LASTS) * world.profile.terms.visibility_timeout
        chance = self._random.random()
        if chance < 0.2:
            world.disturb(worker, "its connections are forgotten")
            # The first call that fails shows it, and the next one uses a new connection.
            self._forgotten[worker] = world.clock() + timeout
            return Hang(there=math.inf, fails_after=timeout)
        if chance < 0.4:
            world.disturb(worker, "a call is never answered")
            return Hang(there=math.inf)
        # If sent late, it may disturb a new owner. That must not happen in a calm world.
        if chance < 0.7 or world.profile.is_calm:
            world.disturb(worker, "a call is answered late")
            return Hang(back=seconds)
        world.disturb(worker, "a call is sent late")
        return Hang(there=seconds)

    def _is_late(self, call: Call) -> bool:
        """Return whether a lease has already lost time because its keeper was away."""
        now = self._world.clock()
        return any(
            entry.lease.expires_at - now < 0.9 * entry.lease.terms.threshold
            for entry in call.entries
        )


def _may_cost_a_lease(call: Call) -> bool:
    """Return whether a lease may expire if this call and the next one hang."""
    leases = [entry.lease for entry in call.entries]
    threshold = min(lease.terms.threshold for lease in leases)
    is_short = call_patience(threshold) > 0.34 * threshold
    return is_short or any(lease.attempts > 1 for lease in leases)


class Holding:
    """A server that executes changes of visibility late, but still answers polls."""

    #: How often while a world lasts, and for how long, in visibility timeouts. Leases expire, and
    #: their workers receive the messages again, before the server executes the calls.
    TIMES, LASTS = 20, (0.6, 1.2, 2.5)

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} holding")
        self._until = 0.0
        if meets(seed, "a server that holds calls") and not world.profile.is_calm:
            world.every(self._random, self.TIMES / world.profile.seconds, self._begin)

    def draw(self, worker: str, call: Call) -> Hang | None:
        """Return how a call is held, or None."""
        left = self._until - self._world.clock()
        if left <= 0 or self._world.is_over or call.kind is not CallKind.CHANGE_VISIBILITY:
            return None
        self._world.disturb(worker, "a change of visibility is held")
        later = self._random.uniform(0, 0.5) * self._world.profile.terms.visibility_timeout
        ends_by_itself = self._random.random() < 0.5
        fails_after = self._world.profile.call_timeout if ends_by_itself else math.inf
        return Hang(there=left + later, fails_after=fails_after)

    def _begin(self) -> None:
        self._world.disturb("queue", "holds changes of visibility")
        lasts = self._random.choice(self.LASTS) * self._world.profile.terms.visibility_timeout
        self._until = self._world.clock() + lasts


class Outage:
    """A second queue whose calls all hang for a while. The first queue must not be affected.

    It also chooses the queue of each message.
    """

    #: How often that happens while a world lasts, and for how long, in visibility timeouts.
    TIMES, LASTS = 3, (0.5, 2.0, 10.0, 40.0)
    #: How often the calls of an outage never return, even when it has ended.
    ENDLESS = 0.3

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = random.Random(f"{seed} outage")
        self._until = self._explains_until = 0.0
        self._is_endless = False
        if len(world.queues) > 1:
            world.every(self._random, self.TIMES / world.profile.seconds, self._begin)

    def choose_queue(self) -> SimulatedQueue:
        """Return the queue to which the next message is sent."""
        queues = self._world.queues
        return queues[0] if len(queues) == 1 else self._random.choice(queues)

    def excuse(self, truth: MessageTruth) -> None:
        """Note on a message whether its queue hangs. Such a message may not get any call at all."""
        if self._world.clock() < self._explains_until and truth.queue is not self._world.queues[0]:
            truth.excuses.add(HANGING)

    def note_stuck(self, keeper: ThreadKeeper, board: Board) -> None:
        """Note the messages for which a keeper makes no calls, because too many calls hang."""
        if keeper.health.hanging >= MOST_HANGING:
            for lease in board.leases():
                if keeper.is_stuck(lease.queue_url):
                    self._world.truth[lease.message_id].excuses.add(HANGING)

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

    def _begin(self) -> None:
        world = self._world
        world.disturb("queue", "one of two queues hangs")
        lasts = self._random.choice(self.LASTS) * world.profile.terms.visibility_timeout
        self._until = max(self._until, world.clock() + lasts)
        self._is_endless = self._random.random() < self.ENDLESS
        self._explains_until = max(self._explains_until, self._until)
        for truth in world.truth.values():
            self.excuse(truth)


class Starting:
    """Draws for how long the server executes no call of a worker that starts.

    Calls that are sent meanwhile are executed later, even if no one waits for them any more.
    """

    #: How often the server stalls at a start, and for how long, in visibility timeouts.
    RATE, LASTS = 0.6, (0.1, 0.5, 1.5, 4.0)

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} starting")
        self._until: dict[str, float] = {}
        self.is_met = meets(seed, "a server that stalls at a start")

    def begin(self, worker: str) -> None:
        """Note that a process of a worker starts."""
        world = self._world
        if not self.is_met or world.is_over or self._random.random() >= self.RATE:
            return
        world.disturb(worker, "starts while the server is stalled")
        lasts = self._random.choice(self.LASTS) * world.profile.terms.visibility_timeout
        self._until[worker] = world.clock() + lasts

    def left(self, worker: str) -> float:
        """Return for how many more seconds the server stalls."""
        return max(0.0, self._until.get(worker, 0.0) - self._world.clock())

    def draw(self, worker: str, _call: object = None) -> Hang | None:
        """Return how a call is delayed, or None."""
        if not (left := self.left(worker)):
            return None
        # The call is repeated once it is given up.
        self._world.tally.visibility_bound += 1
        return Hang(there=left, fails_after=self._world.profile.call_timeout)


class Delayed:
    """A busy machine: a call waits for a CPU, or for its client, before it is sent."""

    #: How often a call is delayed, and for how long, in visibility timeouts.
    RATE, LASTS = 0.4, (0.02, 0.05, 0.1, 0.3)

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} delayed")
        self._is_met = meets(seed, "a busy machine") and not world.profile.is_calm

    def draw(self, worker: str) -> float:
        """Return how many seconds a call waits before it is sent; 0 for most calls."""
        if not self._is_met or self._world.is_over or self._random.random() >= self.RATE:
            return 0.0
        self._world.disturb(worker, "a call waits before it is sent")
        # The call is repeated once it is given up.
        self._world.tally.visibility_bound += 1
        return self._random.choice(self.LASTS) * self._world.profile.terms.visibility_timeout


class Swallowing:
    """Tasks whose end is never reported, and whether a world's pools have processes.

    It has its own random generator, so the other worlds stay unchanged.
    """

    #: In how many worlds the ends of tasks are swallowed, and how often in those worlds.
    WORLDS, RATE = 0.3, 0.03

    def __init__(self, kind: str, seed: int) -> None:
        self._random = random.Random(f"lost ends of {kind} {seed}")
        self._rate = self.RATE if self._random.random() < self.WORLDS else 0.0
        self.may_run_on = self._random.random() < 0.5

    def draw(self) -> bool:
        """Return whether the end of a task is swallowed."""
        return bool(self._rate) and self._random.random() < self._rate
