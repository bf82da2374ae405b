"""What is known of an app without asking SQS, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from celery_sqs_heartbeat.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """How one task is delivered.

    Attributes:
        retries: How often it may be retried, where it says that it is: by `autoretry_for`, or a
            `max_retries` of its own. None without a limit, 0 where it says nothing.
    """

    name: str
    acks_late: bool = True
    time_limit: float | None = None
    retries: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What is known of the app's broker. Times in seconds.

    Attributes:
        transport: The name of its transport.
        is_sqs: The broker is SQS, by kombu's own transport.
        own_transport: A transport that derives from kombu's; the heartbeat lets it be.
        broken_broker: Why kombu can't use the broker's configuration.
        option_faults: What is wrong with the transport options.
        plain_http: Where SQS is reached without TLS, beyond this machine.
    """

    transport: str = "sqs"
    is_sqs: bool = True
    own_transport: str | None = None
    broken_broker: str | None = None
    option_faults: Sequence[str] = ()
    wait_time: int = 10
    polling_interval: float = 1
    created_timeout: object = None
    is_predefined: bool = True
    plain_http: str | None = field(default=None, repr=False)

    @property
    def broker_fault(self) -> str | None:
        """Why SQS can't be asked by the app's configuration, or None."""
        return self.broken_broker or "; ".join(self.option_faults) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingFacts:
    """What is known of the messages that an app sends to FIFO queues.

    Attributes:
        groups: The message groups that its routes name.
        may_name_groups: There is code that may name others, whatever it does.
        deduplicated_routes: The patterns of routes with a deduplication id.
    """

    groups: frozenset[str] = frozenset()
    may_name_groups: bool = False
    deduplicated_routes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts(BrokerFacts):
    """What is known of an app and its broker without asking SQS. Times in seconds.

    Attributes:
        faults: What is wrong with the settings; `settings` are the defaults then.
        acks_on_failure: The setting that has messages of failed tasks deleted, if one does.
        keeps_on_worker_lost: A task whose process dies is tried again.
        concurrency: Tasks that the worker runs at a time.
        pool_fault: Why a worker can't use the pool.
        queue_fault: Why the app's queues can't be made of its settings.
        broken_tasks: Why the app's tasks can't be imported.
        has_otel: opentelemetry is installed.
        versions: By the name of the package.
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
        """The most messages that the worker holds at once; 0 for no bound."""
        return self.concurrency * self.prefetch_multiplier
