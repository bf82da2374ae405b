"""The fleet's queues and tasks, and how often each fault occurs."""

from __future__ import annotations

import enum
import math
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

from celery.concurrency.prefork import TaskPool

from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.worker.heartbeat import describe_worker


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProfile:
    """One queue and its task. Times are in seconds.

    Attributes:
        median: The median of the run times, which are lognormal.
        sigma: The standard deviation of their logarithms.
        share: The part of all messages that goes to this queue.
        max_receive_count: The one of its redrive policy, or None.
        is_extended: Whether its leases are extended: False if its task has opted out.
    """

    name: str
    task: str
    visibility_timeout: int
    median: float
    sigma: float
    share: float
    max_lease: float | None = None
    max_receive_count: int | None = None
    is_extended: bool = True

    @property
    def rules(self) -> Rules:
        """The settings of the queue."""
        return Rules(visibility_timeout=self.visibility_timeout, max_lease=self.max_lease)

    @property
    def terms(self) -> LeaseTerms:
        """The terms of its leases."""
        rules = replace(self.rules, extend=self.is_extended)
        return rules.terms(self.visibility_timeout)

    @property
    def mean(self) -> float:
        """The mean run time."""
        return self.median * math.exp(self.sigma**2 / 2)

    def run_time(self, generator: random.Random) -> float:
        """Return a random run time."""
        return max(0.01, generator.lognormvariate(math.log(self.median), self.sigma))


QUEUES = (
    QueueProfile(
        name="mail", task="mail.send", visibility_timeout=30, median=2, sigma=1.0, share=0.70,
        max_receive_count=6,
    ),
    QueueProfile(
        name="thumbs", task="pictures.shrink", visibility_timeout=60, median=20, sigma=1.1,
        share=0.25,
    ),
    QueueProfile(
        name="reports", task="reports.build", visibility_timeout=90, median=120, sigma=0.9,
        share=0.045, max_lease=600,
    ),
    QueueProfile(
        name="exports", task="exports.write", visibility_timeout=60, median=40, sigma=0.7,
        share=0.005, is_extended=False,
    ),
)  # fmt: skip


class Trouble(enum.Enum):
    """A disturbance of a worker. Each has one known effect on the messages that it holds."""

    STARVED = "keeper-starved"
    SLOW = "slow calls"
    REFUSED = "refused calls"
    ERRORS = "calls answered with HTTP 500"
    LOST = "lost calls"
    DENIED = "calls that are not permitted"
    KILLED = "killed"
    KILLED_KEPT = "killed, and its keeper survives"
    KILLED_AFTER_SUCCESS = "killed after success"
    SOFT_SHUTDOWN = "soft shutdown"


#: How many seconds calls keep failing: longer than any visibility timeout.
SPELL = 150.0
#: How many seconds a starved keeper does nothing. Every lease expires within that time.
STALL = 130.0
#: How many seconds a killed worker's poll stays open at SQS, at most.
POLL = 10.0
#: The mean seconds between two disturbances of a worker. N workers have N times as many.
TROUBLE_EVERY = 1_800.0
#: The mean seconds between two copies that SQS itself delivers, for one worker.
SECOND_DELIVERY_EVERY = 7_200.0
#: The part of the fleet's slots that is busy on average.
LOAD = 0.6
#: How many tasks one worker runs at the same time.
CONCURRENCY = 4
#: How many messages one worker holds, including waiting ones.
PREFETCH = 5
#: One in this many workers has neither a heartbeat nor a journal.
BARE_EVERY = 20
#: The error of a worker's wall clock, in seconds: large enough for the pipeline to correct it.
SKEW = (0.5, 3.0)
#: The part of all executions that fail and are released.
FAILING = 0.005
#: The part of the messages, on queues with a dead-letter queue, that fail in every execution.
POISONED = 0.002


def worker_info() -> WorkerInfo:
    """Return the contents of a worker's first line, as a real worker with these settings has it."""
    settings = Settings(
        enabled=True,
        journal="journal",
        queues={each.name: each.rules for each in QUEUES},
        tasks={each.task: Rules(extend=False) for each in QUEUES if not each.is_extended},
    )
    worker = SimpleNamespace(hostname="", pool=TaskPool(CONCURRENCY), concurrency=CONCURRENCY)
    return describe_worker(worker, settings)
