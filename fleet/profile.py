"""What the fleet is made of: queues, their tasks, and how often what goes wrong."""

from __future__ import annotations

import enum
import math
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

from celery.concurrency.prefork import TaskPool

from celery_sqs_heartbeat.journal.identity import WorkerInfo
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.worker.describing import describe_worker


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProfile:
    """One queue and its task. Times in seconds.

    Attributes:
        median: Of the run times, which are lognormal.
        sigma: Of their logarithms.
        share: Of the messages.
        max_receive_count: Of its redrive policy; None without one.
        is_extended: Whether its task has not opted out.
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
        """What is set for it."""
        return Rules(visibility_timeout=self.visibility_timeout, max_lease=self.max_lease)

    @property
    def terms(self) -> LeaseTerms:
        """The rules that its leases are kept by."""
        rules = replace(self.rules, extend=self.is_extended)
        return rules.terms(self.visibility_timeout)

    @property
    def mean(self) -> float:
        """Mean run time."""
        return self.median * math.exp(self.sigma**2 / 2)

    def run_time(self, generator: random.Random) -> float:
        """Draw a run time."""
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
    """What happens to a worker. Each has one known consequence for the messages it holds."""

    STARVED = "keeper-starved"
    SLOW = "slow calls"
    REFUSED = "refused calls"
    ERRORS = "calls answered with HTTP 500"
    LOST = "lost calls"
    DENIED = "calls that are not permitted"
    KILLED = "killed"
    KILLED_UNHEARD = "killed, and its last lines lost"
    KILLED_AFTER_SUCCESS = "killed after success"
    SOFT_SHUTDOWN = "soft shutdown"


#: Seconds that a spell of bad calls lasts: longer than any visibility timeout.
SPELL = 150.0
#: Seconds that a starved keeper stands still: so that every lease runs out.
STALL = 130.0
#: Seconds after which a worker that is not heard of is taken for dead.
SILENT = 900.0
#: Seconds between two troubles of the fleet, for one worker; N workers have N times as many.
TROUBLE_EVERY = 1_800.0
#: Seconds between two second deliveries of SQS's own, for one worker.
SECOND_DELIVERY_EVERY = 7_200.0
#: Part of the fleet's slots that is busy on average.
LOAD = 0.6
#: Tasks at once of one worker.
CONCURRENCY = 4
#: Messages of one worker, waiting ones included.
PREFETCH = 5
#: One in so many workers has neither heartbeat nor journal.
BARE_EVERY = 20
#: By how much a worker's wall clock is off, in seconds: so much that the pipeline corrects it.
SKEW = (0.5, 3.0)
#: One in so many executions fails and is released.
FAILING = 0.005
#: One in so many messages fails in every execution.
POISONED = 0.002


def worker_info() -> WorkerInfo:
    """Return what a worker's first line says, as a real one with these settings says it."""
    settings = Settings(
        enabled=True,
        journal="journal",
        queues={each.name: each.rules for each in QUEUES},
        tasks={each.task: Rules(extend=False) for each in QUEUES if not each.is_extended},
    )
    worker = SimpleNamespace(hostname="", pool=TaskPool(CONCURRENCY), concurrency=CONCURRENCY)
    return describe_worker(worker, settings)
