"""What was measured of a queue or a task: the input of the replay."""

from __future__ import annotations

from dataclasses import dataclass, field

from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram

#: A worker is taken to die once in so many hours of work, as far as the data does not tell
#: otherwise: deployments, spot machines and full memories are rarer than a journal is long.
HOURS_TO_A_CRASH = 720.0
#: Calls of `PRIOR_LATENCY_US` that are taken as seen where none was: boto3's first try,
#: name look-up and TLS handshake included.
PRIOR_CALLS = 100
PRIOR_LATENCY_US = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What all queues share.

    Attributes:
        stalls: For how long keepers were held up.
        worker_us: Microseconds that workers lived, together.
        concurrency: Tasks at once of the largest worker.
    """

    stalls: Histogram = field(default_factory=Histogram)
    worker_us: int = 0
    concurrency: int = 1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a queue, or of one task's messages in it.

    Attributes:
        task: None for the whole queue.
        held: From a message's receive to the end of its task.
        run: Of its task alone.
        latency: Of calls that extend.
        entries_per_call: Of those, on average.
        crashes: Attempts that were abandoned.
        timeouts: Visibility timeouts of the receives, in seconds, and how many had each.
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
        """How many the figures are from."""
        return self.held.count

    def crashes_per_hour(self) -> float:
        """Return crashes in an hour that a message is held."""
        hours = self.held.mean() * self.messages / 3.6e9
        return (self.crashes + 1) / (hours + HOURS_TO_A_CRASH)
