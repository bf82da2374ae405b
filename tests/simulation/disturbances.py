"""Disturbances at random times of a world: of workers, their links and keepers, and of queues."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT, QueueAttributes
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues
from tests.simulation.apart import Apart
from tests.simulation.profile import meets

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

#: How long a message takes over a slow link, and how long the link stays slow, in seconds.
SLOW, SLOW_FOR = (0.2, 1.0, 4.0), 30.0
#: The largest number of steps that a keeper takes before it dies.
STEPS = 12
#: How long a keeper hangs before it is killed, in seconds.
HUNG = (1.0, 1.4)
#: How long a worker stalls, in visibility timeouts. Its keeper does not stall.
STILL = (0.3, 1.5, 5.0)
CHANGE, DELETE = "ChangeMessageVisibilityBatch", "DeleteMessageBatch"
#: Where the queues are; nothing looks there.
_BROKER = BrokerConfig(endpoint_url=None, region="", use_ssl=True, access_key=None, secret_key=None)


def plan(world: World, worker: SimulatedWorker) -> None:
    """Disturb a worker again and again, and its link, if its keeper is apart."""
    rate = 1 / world.profile.disturbance
    world.every(world.random, rate, partial(_disturb, world, worker))
    if world.is_apart:
        world.every(world.process_random, rate, partial(_disturb_link, world, worker))


def _disturb(world: World, worker: SimulatedWorker) -> None:
    if not worker.is_up:
        return
    chance = world.random.random()
    if chance < 0.25:
        worker.crash()
    elif chance < 0.45:
        worker.stop()
    elif chance < 0.6 or world.profile.is_calm:
        worker.reconnect()
    else:
        timeout = world.profile.terms.visibility_timeout
        seconds = world.random.choice((0.1, 0.5, 1.5, 6.0)) * timeout
        worker.pause(seconds, is_suspend=chance > 0.85)


def _disturb_link(world: World, worker: SimulatedWorker) -> None:
    keeping = worker.keeping
    if not worker.is_up or not isinstance(keeping, Apart) or keeping.is_away:
        return
    draw, terms = world.process_random, world.profile.terms
    is_calm = world.profile.is_calm
    most = terms.threshold / 10 if is_calm else 60.0
    chance = draw.random()
    if chance < 0.25:
        world.disturb(worker.name, "its link is slow")
        keeping.slow_down(min(most, draw.choice(SLOW)), SLOW_FOR)
    elif chance < 0.45:
        world.disturb(worker.name, "its interpreter stalls")
        worker.pause(draw.choice(STILL) * terms.visibility_timeout, is_suspend=False)
    elif chance < 0.5 and not is_calm:
        world.disturb(worker.name, "its keepers die before they are ready")
        keeping.kill_at_start(draw.randint(1, 3))
    elif chance < 0.8:
        aims_at_release = draw.random() < 0.6
        at = "a release" if aims_at_release else "a step"
        world.disturb(worker.name, f"its keeper is killed at {at}")
        keeping.process.kill_at(
            draw.randrange(STEPS // 2 if aims_at_release else STEPS),
            lambda: _can_be_missed(world, worker, keeping),
            aims_at_release=aims_at_release,
        )
    elif _can_be_missed(world, worker, keeping):
        world.disturb(worker.name, "its keeper hangs")
        keeping.hang(min(most, draw.uniform(*HUNG)))


def _can_be_missed(world: World, worker: SimulatedWorker, keeping: Apart) -> bool:
    """Return whether a keeper may die. In a calm world, only if no lease has lost time already.

    Nor if the queue's timeout has become so short that a lease may end before the next keeper.
    """
    if not world.profile.is_calm:
        return True
    now, threshold = world.clock(), world.profile.terms.threshold
    is_awake = now >= worker.paused_until
    has_time = all(
        not lease.attempts and lease.terms.threshold >= threshold
        for lease in keeping.board.leases()
    )
    waits = now - keeping.process.calls.oldest()
    return is_awake and has_time and waits <= threshold / 10


class Attributes:
    """Changes the first queue's timeout at random. The workers find out late.

    It has its own random generator, so the rest of a world does not depend on it.

    Attributes:
        used: The timeouts that leases may have.
    """

    #: Factors for the first timeout. The threshold may be above the product.
    FACTORS = (0.25, 0.5, 1.0, 2.0, 3.0)
    #: The shortest timeout, in seconds. With less, a calm world's slow calls would lose leases.
    SHORTEST = 2
    #: How often a timeout changes while a world lasts.
    CHANGES = 8
    #: How long reading the attributes takes, in seconds, and how often it fails.
    READ_SECONDS, READ_FAILS = 0.2, 0.3

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} attributes")
        self.changes = meets(seed, "a queue that changes")
        self._first = world.profile.terms.visibility_timeout
        self.used = {self._first}
        if self.changes:
            world.every(self._random, self.CHANGES / world.profile.seconds, self._change)

    def known_to(self, worker: SimulatedWorker) -> tuple[Settings, QueueDirectory]:
        """Return what the terms of a worker's new process follow from.

        The process reads the attributes at least once, unless the server stalls when the process
        starts. If the attributes are unknown, a task starts only once an extension is confirmed.
        """
        terms = self._world.profile.terms
        fifo = "strict" if self._world.order.is_kept else "parallel"
        rules = Rules(
            threshold=terms.threshold,
            max_lease=terms.max_lease,
            fifo=fifo,
            fifo_batch=SQS.most_received,
        )
        clock, reads = self._world.clock, itertools.count()
        queues = QueueDirectory(
            lambda url: self._read(worker, may_fail=next(reads) > 0),
            lambda job: clock.at(clock() + self.READ_SECONDS, job),
            worker.now,
        )
        return Settings(rules=rules), queues

    def prepare(self, leased: LeasedQueues) -> None:
        """Check the queues of a new process, where the server may stall.

        Elsewhere the settings may not fit now, and leases must be kept anyway.
        """
        for queue in self._world.queues if self._world.starting.is_met else ():
            leased.prepare(queue.url, queue.url, _BROKER)

    def calls_a_second(self) -> float:
        """Return how many calls a second extend a worker's leases, those of each terms together."""
        threshold = self._world.profile.terms.threshold
        rules = Rules(threshold=threshold)
        all_terms = (rules.fitting_terms(timeout, 0) for timeout in self.used)
        return sum(1 / (terms.visibility_timeout - terms.threshold) for terms in all_terms)

    def _change(self) -> None:
        timeout = max(self.SHORTEST, int(self._first * self._random.choice(self.FACTORS)))
        self._world.disturb("queue", "has another visibility timeout")
        self._world.queues[0].options.visibility_timeout = timeout
        self.used.add(timeout)

    def _read(self, worker: SimulatedWorker, *, may_fail: bool) -> QueueAttributes:
        if self._world.starting.left(worker.name):
            self._world.disturb(worker.name, "can't read the attributes when it starts")
            # Leases that begin before the attributes are known are kept by SQS's default timeout.
            self.used.add(DEFAULT_VISIBILITY_TIMEOUT)
            raise TimeoutError
        may_fail = may_fail and self.changes and not self._world.is_over
        if may_fail and self._random.random() < self.READ_FAILS:
            self._world.disturb("queue", "does not report its attributes")
            raise TimeoutError
        most = self._world.profile.max_receive_count
        return QueueAttributes(self._world.queues[0].options.visibility_timeout, most)


class Refusals:
    """A client of the simulated SQS that sometimes refuses a call because of its policy.

    A policy is being replaced, or a queue is hidden.
    """

    #: The operations that are refused together, in worlds that refuse deletes, too.
    TOGETHER = ((CHANGE,), (DELETE,), (CHANGE, DELETE))
    #: How long a policy is missing, in visibility timeouts; 0 for a single call.
    LASTS = (0.0, 0.0, 0.2, 1.0, 5.0)

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} refusals")
        self._choice = random.Random(f"{kind} {seed} refused operations")
        self._together = self.TOGETHER if meets(seed, "refused deletes") else self.TOGETHER[:1]
        self._operations: tuple[str, ...] = ()
        self._error: Callable[[str], SqsError] | None = None
        self._until = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._world.sqs, name)
        operation = name.title().replace("_", "")
        if self._error is None or operation not in self._operations:
            return method
        error = self._error(operation)
        if self._world.clock() >= self._until:
            self._error = None

        def refuse(**request: Any) -> Any:
            raise error.as_client_error(operation)

        return refuse

    def plan(self) -> None:
        """Refuse calls again and again."""
        self._world.every(self._random, 1 / self._world.profile.disturbance, self._begin)

    def end(self) -> None:
        """Refuse nothing any more."""
        self._error = None

    def _begin(self) -> None:
        world = self._world
        # In a calm world a lease must outlast the refusal.
        lasts = 0.0 if world.profile.is_calm else self._random.choice(self.LASTS)
        is_hidden = self._random.random() < 0.3
        self._error = (lambda operation: errors.no_queue()) if is_hidden else errors.denied
        self._operations = self._choice.choice(self._together)
        self._until = world.clock() + lasts * world.profile.terms.visibility_timeout
        if CHANGE in self._operations:
            # The refused call, and the probe that follows it.
            world.tally.visibility_bound += 2
        what = "the queue is hidden" if is_hidden else "a permission is missing"
        if DELETE in self._operations:
            what += ", of deletes too" if CHANGE in self._operations else ", of deletes"
        world.disturb("policy", f"{what} for {'a while' if lasts else 'one call'}")
