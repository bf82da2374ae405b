"""The measurements of a queue or a task, which the replay uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram

#: A worker is assumed to die once in this many hours of work, unless the data shows otherwise. A
#: journal is often too short to contain deployments, spot interruptions and full memories.
HOURS_TO_A_CRASH = 720.0
#: If no call was measured, this many calls of `PRIOR_LATENCY_US` are assumed: boto3's first try,
#: with DNS lookup and TLS handshake.
PRIOR_CALLS = 100
PRIOR_LATENCY_US = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Measurements that all queues share.

    Attributes:
        stalls: How long keepers were delayed.
        worker_us: Sum of the workers' lifetimes, in microseconds.
        concurrency: Maximum number of tasks at once, of the largest worker.
    """

    stalls: Histogram = field(default_factory=Histogram)
    worker_us: int = 0
    concurrency: int = 1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measurements of a queue, or of one task's messages in it.

    Attributes:
        task: None for the whole queue.
        held: Time from a message's receive to the end of its task.
        run: Run time of its task.
        latency: Duration of calls that extend.
        entries_per_call: Average number of messages in such a call.
        crashes: Number of abandoned attempts.
        timeouts: Number of receives by their visibility timeout in seconds.
    """

    queue: str
    task: str | None
    held: Histogram
    run: Histogram = field(default_factory=Histogram)
    latency: Histogram = field(default_factory=Histogram)
    entries_per_call: float = 1.0
    crashes: int = 0
    timeouts: dict[int, int] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)

    @property
    def messages(self) -> int:
        """Number of attempts that the figures are based on."""
        return self.held.count

    def crashes_per_hour(self) -> float:
        """Return the crashes per hour that a message is held."""
        hours = self.held.mean() * self.messages / 3.6e9
        return (self.crashes + 1) / (hours + HOURS_TO_A_CRASH)
