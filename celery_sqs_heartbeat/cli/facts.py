"""What the checks go by: plain values, read beforehand from the app and from SQS."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from celery_sqs_heartbeat.settings import Settings


class Tried(enum.Enum):
    """What became of a call to SQS."""

    #: It was done, or refused for a reason that comes after the permission.
    ALLOWED = "allowed"
    DENIED = "denied"
    NO_QUEUE = "no queue"
    #: The credentials are missing, wrong or out of date.
    CREDENTIALS = "credentials"
    UNREACHABLE = "unreachable"
    #: Throttled, or SQS is in trouble.
    BUSY = "busy"
    #: Refused for any other reason.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one call, without anything secret.

    Attributes:
        reason: SQS's error code, or the kind of network error.
        skew: By how many seconds this machine's clock is ahead of SQS's.
    """

    tried: Tried
    reason: str = ""
    payload: Mapping[str, object] = field(default_factory=dict)
    skew: float | None = None

    @property
    def has_come(self) -> bool:
        """Whether SQS itself has answered, as far as can be told."""
        return self.skew is not None or self.tried not in (Tried.UNREACHABLE, Tried.CREDENTIALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """How one task is delivered."""

    name: str
    acks_late: bool = True
    time_limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """What is known of the app without asking SQS. Times in seconds.

    Attributes:
        transport: The name of the broker's transport.
        is_sqs: The broker is SQS, by kombu's own transport.
        own_transport: A transport that derives from kombu's; the heartbeat lets it be.
        broken_broker: Why kombu can't use the broker's configuration.
        faults: What is wrong with the settings; `settings` are the defaults then.
        acks_on_failure: The setting that has messages of failed tasks deleted, if one does.
        keeps_on_worker_lost: A task whose process dies is tried again.
        concurrency: Tasks that the worker runs at a time.
        versions: By the name of the package.
    """

    transport: str = "sqs"
    is_sqs: bool = True
    own_transport: str | None = None
    broken_broker: str | None = None
    is_installed: bool = True
    settings: Settings = field(default_factory=lambda: Settings(enabled=True))
    faults: Sequence[str] = ()
    acks_late: bool = True
    acks_on_failure: str | None = None
    keeps_on_worker_lost: bool = True
    tasks: Sequence[TaskFacts] = ()
    time_limit: float | None = 3600
    prefetch_multiplier: int = 4
    concurrency: int = 2
    eta_task_limit: int | None = 100
    pool: str = "prefork"
    wait_time: object = 10
    polling_interval: object = 1
    created_timeout: object = None
    is_predefined: bool = True
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"celery": "5.7.0", "kombu": "5.7.0"}
    )

    @property
    def leases(self) -> int:
        """The most messages that the worker holds at once; 0 for no bound."""
        return self.concurrency * self.prefetch_multiplier


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What SQS says of one queue.

    Attributes:
        name: As Celery has it.
        found: The answer to the question for its attributes, or for its URL.
        tries: The answers to calls that change nothing, by the permission they need.
    """

    name: str
    url: str | None = None
    is_predefined: bool = True
    found: Answer = Answer(tried=Tried.ALLOWED)
    attributes: Mapping[str, str] = field(default_factory=dict)
    tries: Mapping[str, Answer] = field(default_factory=dict)

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of its message groups."""
        return (self.url or self.name).endswith(".fifo")

    def number(self, attribute: str) -> int | None:
        """Return a number among its attributes, or None where it has none."""
        text = str(self.attributes.get(attribute, ""))
        return int(text) if text.isdecimal() else None
