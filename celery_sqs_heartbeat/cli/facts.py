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


class Place(enum.Enum):
    """What was found where a worker of this machine would write or listen."""

    USABLE = "usable"
    UNUSABLE = "unusable"
    #: A worker's status page is served there.
    OURS = "ours"
    #: S3 does not give the bucket.
    NO_BUCKET = "no bucket"
    #: As far as can be known without a write.
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """What is known of the journal's place and the status page's address.

    Attributes:
        space: Bytes that the journal's file system has left for this user.
    """

    journal: Place = Place.USABLE
    journal_why: str = field(default="", repr=False)
    space: int | None = None
    page: Place = Place.USABLE
    page_why: str = field(default="", repr=False)


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
        option_faults: What is wrong with the transport options.
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

    transport: str = "sqs"
    is_sqs: bool = True
    own_transport: str | None = None
    broken_broker: str | None = None
    option_faults: Sequence[str] = ()
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
    pool_fault: str | None = field(default=None, repr=False)
    queue_fault: str | None = field(default=None, repr=False)
    broken_tasks: str | None = field(default=None, repr=False)
    has_otel: bool = True
    wait_time: int = 10
    polling_interval: float = 1
    created_timeout: object = None
    is_predefined: bool = True
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"celery": "5.7.0", "kombu": "5.7.0"}
    )

    @property
    def broker_fault(self) -> str | None:
        """Why SQS can't be asked by the app's configuration, or None."""
        return self.broken_broker or "; ".join(self.option_faults) or None

    @property
    def leases(self) -> int:
        """The most messages that the worker holds at once; 0 for no bound."""
        return self.concurrency * self.prefetch_multiplier


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What SQS says of one queue.

    Attributes:
        name: As Celery has it.
        sqs_name: As SQS has it, where that is known: kombu puts a prefix before names, and
            changes characters that SQS does not accept.
        found: The answer to the question for its attributes, or for its URL.
        tries: The answers to calls that change nothing, by the permission they need.
    """

    name: str
    sqs_name: str | None = None
    url: str | None = None
    is_predefined: bool = True
    found: Answer = Answer(tried=Tried.ALLOWED)
    attributes: Mapping[str, str] = field(default_factory=dict)
    tries: Mapping[str, Answer] = field(default_factory=dict)

    @property
    def is_answered(self) -> bool:
        """Whether SQS said of all that it was asked what is so, even if it denies it."""
        said = (Tried.ALLOWED, Tried.DENIED, Tried.NO_QUEUE)
        return all(each.tried in said for each in (self.found, *self.tries.values()))

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of its message groups."""
        return (self.url or self.name).endswith(".fifo")

    def number(self, attribute: str) -> int | None:
        """Return a number among its attributes, or None where it has none."""
        text = str(self.attributes.get(attribute, ""))
        return int(text) if text.isdecimal() else None
