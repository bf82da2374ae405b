"""A queue whose visibility timeout changes, and what each worker knows about it."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases.service import SQS
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT, QueueAttributes
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

#: One world in so many has a queue that changes.
EVERY, REST = 4, 1
#: Factors for the first timeout. The threshold may be above the product.
FACTORS = (0.25, 0.5, 1.0, 2.0, 3.0)
#: The shortest timeout, in seconds. With less, a calm world's slow calls would lose leases.
SHORTEST = 2
#: How often a timeout changes while a world lasts.
CHANGES = 8
#: How long reading the attributes takes, in seconds, and how often it fails.
READ_SECONDS, READ_FAILS = 0.2, 0.3
#: Where the queues are; nothing looks there.
_BROKER = BrokerConfig(endpoint_url=None, region="", use_ssl=True, access_key=None, secret_key=None)


class Attributes:
    """Changes the queue's timeout at random. The workers find out late.

    It has its own random generator, so the rest of a world does not depend on it.
    """

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self._world = world
        self._random = random.Random(f"{kind} {seed} attributes")
        self.changes = seed % EVERY == REST
        self._first = world.profile.terms.visibility_timeout
        self.used = {self._first}
        if self.changes:
            self._plan()

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
            lambda job: clock.at(clock() + READ_SECONDS, job),
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

    def _plan(self) -> None:
        wait = self._random.expovariate(CHANGES / self._world.profile.seconds)
        self._world.clock.at(self._world.clock() + wait, self._change)

    def _change(self) -> None:
        if self._world.is_over:
            return
        self._plan()
        timeout = max(SHORTEST, int(self._first * self._random.choice(FACTORS)))
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
        if may_fail and self._random.random() < READ_FAILS:
            self._world.disturb("queue", "does not report its attributes")
            raise TimeoutError
        most = self._world.profile.max_receive_count
        return QueueAttributes(self._world.queues[0].options.visibility_timeout, most)
