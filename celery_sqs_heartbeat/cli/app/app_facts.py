"""The facts about an app that need no call to SQS, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from celery_sqs_heartbeat.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """How one task is delivered.

    Attributes:
        retries: How often the task may be retried, if it sets `autoretry_for` or `max_retries`.
            None without a limit, 0 if it sets neither.
    """

    name: str
    acks_late: bool = True
    time_limit: float | None = None
    retries: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The facts about the app's broker. Times are in seconds.

    Attributes:
        transport: The name of its transport.
        is_sqs: Whether the broker is SQS, by kombu's transport or one that derives from it.
        own_transport: A transport that derives from kombu's. The heartbeat does not replace it.
        broken_broker: Why kombu can't use the broker's configuration.
        option_faults: The faults of the transport options.
        creation_faults: The faults of those that matter only when kombu creates a queue.
        plain_http: The address of SQS, if it is not this machine's and has no TLS.
    """

    transport: str = "sqs"
    is_sqs: bool = True
    own_transport: str | None = None
    broken_broker: str | None = None
    option_faults: Sequence[str] = ()
    creation_faults: Sequence[str] = ()
    wait_time: int = 10
    polling_interval: float = 1
    created_timeout: object = None
    is_predefined: bool = True
    plain_http: str | None = field(default=None, repr=False)

    @property
    def broker_fault(self) -> str | None:
        """Why SQS can't be called with the app's configuration, or None."""
        return self.broken_broker or "; ".join(self.option_faults) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingFacts:
    """The facts about the messages that an app sends to FIFO queues.

    Attributes:
        groups: The message groups that its routes name.
        may_name_groups: Whether there is code that may name other groups.
        deduplicated_routes: The patterns of routes with a deduplication id.
    """

    groups: frozenset[str] = frozenset()
    may_name_groups: bool = False
    deduplicated_routes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts(BrokerFacts):
    """The facts about an app and its broker that need no call to SQS. Times are in seconds.

    Attributes:
        faults: The faults of the settings. If there are any, `settings` holds the defaults.
        acks_on_failure: The setting that makes the worker delete messages of failed tasks, if any.
        keeps_on_worker_lost: Whether a task whose process dies is tried again.
        concurrency: How many tasks the worker runs at a time.
        pool_fault: Why a worker can't use the pool.
        queue_fault: Why the app's settings for queues are unusable.
        broken_tasks: Why the app's tasks can't be imported.
        has_otel: Whether opentelemetry is installed.
        versions: The versions by package name.
    """

    is_installed: bool = True
    settings: Settings = field(default_factory=lambda: Settings(enabled=True))
    faults: Sequence[str] = ()
    acks_late: bool = True
    acks_on_failure: str | None = None
    keeps_on_worker_lost: bool = True
    tasks: Sequence[TaskFacts] = ()
    sending: SendingFacts = SendingFacts()
    time_limit: float | None = 3600
    prefetch_multiplier: int = 4
    concurrency: int = 2
    eta_task_limit: int | None = 100
    pool: str = "prefork"
    pool_fault: str | None = field(default=None, repr=False)
    queue_fault: str | None = field(default=None, repr=False)
    broken_tasks: str | None = field(default=None, repr=False)
    has_otel: bool = True
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"celery": "5.7.0", "kombu": "5.7.0"}
    )

    @property
    def leases(self) -> int:
        """The most messages that the worker holds at the same time; 0 for no limit."""
        return self.concurrency * self.prefetch_multiplier
