"""The messages of the link, as both ends write and read them.

A worker's: hello, gap, reach, started, done, release, drop, finished, unanswered, resume, consume,
cancel, close, end, worker, pool, loop, tick, connected, level, stop. Its keeper's: kept, over,
event, log, stats. The first field is the kind. The name of a lease is the receipt handle that it
had first. Messages for the worker's tasks go another way, see `deliveries`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from typing import Any

from botocore import UNSIGNED

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseTerms
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.held_messages import HeldMessage
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue

#: Increased with each change of a message, or of the table that both ends use. Both ends must have
#: the same version. They may differ if the package is replaced while the worker runs, because a new
#: keeper loads the new package.
VERSION = 20

_TERMS = tuple(field.name for field in fields(LeaseTerms))
_EVENT = tuple(field.name for field in fields(Event))
#: What the other end knows otherwise, or does not need.
_NOT_SENT = (
    "terms limit extend_at goal status end_at attempts is_isolated cap_is_near pending is_deleted "
    "turn watched_until key"
)
_LEASE = tuple(field.name for field in fields(Lease) if field.name not in _NOT_SENT.split())
_terms_of = attrgetter(*_TERMS)
_event_of = attrgetter(*_EVENT)
_lease_of = attrgetter(*_LEASE)

#: Marks values that JSON does not have.
_MARK = "$"
#: The log lines of this logger and of those below it are sent.
ROOT = "celery_sqs_heartbeat"

_formatter = logging.Formatter()


def lease_fields(lease: Lease) -> Message:
    """Return what one end learns from the other about a lease, except its goal and its status."""
    return (*_lease_of(lease), _terms_of(lease.terms))


def read_lease(values: list[Any]) -> Lease:
    """Return a lease of these fields that is held."""
    *plain, terms = values
    lease = Lease(terms=read_terms(terms), **dict(zip(_LEASE, plain, strict=True)))
    lease.more_handles = tuple(lease.more_handles)
    return lease


def consume(channel: int, queues: Iterable[ConsumedQueue]) -> Message:
    """Return the message that makes a keeper receive from queues for a channel."""
    return ("consume", channel, [_plain(queue) for queue in queues])


def _plain(queue: ConsumedQueue) -> dict[str, Any]:
    plain = {field.name: getattr(queue, field.name) for field in fields(ConsumedQueue)}
    plain["terms"] = _terms_of(queue.terms)
    plain["task_terms"] = {name: _terms_of(each) for name, each in queue.task_terms.items()}
    return plain


def read_queue(plain: dict[str, Any]) -> ConsumedQueue:
    """Return the queue of such a message."""
    task_terms = {name: read_terms(each) for name, each in plain["task_terms"].items()}
    return ConsumedQueue(**{**plain, "terms": read_terms(plain["terms"]), "task_terms": task_terms})


def read_terms(values: list[Any]) -> LeaseTerms:
    """Return terms from their fields, in their order."""
    return LeaseTerms(**dict(zip(_TERMS, values, strict=True)))


def resume(held: HeldMessage, *, was_releasing: bool) -> Message:
    """Return the message that makes a new keeper continue a lease."""
    lease = held.lease
    state = (lease.goal.value, lease.status.value, lease_fields(lease))
    return ("resume", was_releasing, held.pid, *state)


def event(happened: Event) -> Message:
    """Return the message for an event of a lease."""
    # Enums are sent by their values.
    return ("event", [getattr(each, "value", each) for each in _event_of(happened)])


def read_event(values: list[Any]) -> Event:
    """Return the event of such a message.

    Raises:
        BrokenLink: It is not an event.
    """
    try:
        plain = dict(zip(_EVENT, values, strict=True))
        plain["kind"] = EventKind(plain["kind"])
        plain["action"] = plain["action"] and Action(plain["action"])
        plain["outcome"] = plain["outcome"] and Outcome(plain["outcome"])
        return Event(**plain)
    except (TypeError, ValueError) as error:
        raise BrokenLink(f"the link has an invalid event: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a worker.

    Attributes:
        pid: The process id of the worker's main process, which the keeper watches.
        interval: The longest sleep of the keeper, in seconds.
        journal: The journal's location; None for no journal.
        identity: The worker that the journal belongs to: host, pid, boot, started.
        status: `host:port` of the status page; None for no page.
        token: The token that protects the page's data. It is never shown.
        name: The worker's name.
        level: The lowest level of the log lines that the worker writes.
        wants_all: Whether the worker wants every event, not only those that it always needs.
        began_at: When the worker began, in seconds of the keeper's clock.
        session: `module:function` of a function that returns a boto3 session; None for boto3's
            default session.
        keeper: The number of this keeper among those of the worker, from 1.
        most_waiting: How many messages may wait for another of their group.
        concurrency: How many tasks the worker runs at once; 0 if not known.
    """

    pid: int
    interval: float = 1.0
    journal: str | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    status: str | None = None
    token: str | None = field(default=None, repr=False)
    name: str = ""
    level: int = 0
    wants_all: bool = False
    began_at: float | None = None
    session: str | None = None
    keeper: int = 1
    most_waiting: int = 0
    concurrency: int = 0

    def message(self) -> Message:
        """Return it as a message."""
        return ("hello", VERSION, asdict(self))


def read_hello(message: Message) -> Hello:
    """Read a worker's first message.

    Raises:
        BrokenLink: It is not a hello of this version.
    """
    match message:
        case ["hello", version, dict(values)] if version == VERSION:
            return Hello(**values)
        case ["hello", version, *_]:
            raise BrokenLink(
                f"the worker uses version {version!r} of the link, this keeper {VERSION}: the "
                "package was replaced while the worker was running; restart the worker"
            )
    raise BrokenLink("the first message of the link is not a hello")


def reach(config: BrokerConfig, queue_url: str, threshold: float, address: str) -> Message:
    """Return the message that tells the keeper how to reach a queue.

    Raises:
        ConfigurationError: A transport option cannot be sent to another process.
    """
    plain = {
        field.name: to_plain(getattr(config, field.name), field.name)
        for field in fields(BrokerConfig)
    }
    return ("reach", queue_url, threshold, address, plain)


def read_config(plain: Mapping[str, Any]) -> BrokerConfig:
    """Return the configuration of such a message."""
    return BrokerConfig(**{name: from_plain(value) for name, value in plain.items()})


def to_plain(value: Any, where: str) -> Any:
    """Return a value in a form that JSON can hold.

    Args:
        where: The option that contains the value, for the error.

    Raises:
        ConfigurationError: The value, or a part of it, has another type.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if value is UNSIGNED:
        return {_MARK: "unsigned"}
    if isinstance(value, tuple):
        return {_MARK: [to_plain(each, where) for each in value]}
    if isinstance(value, list):
        return [to_plain(each, where) for each in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    raise ConfigurationError(
        [
            # Without the value: it may contain a secret key.
            f"broker_transport_options: {where} has the type {type(value).__name__}, which cannot "
            "be sent to the keeper's process: use strings, numbers, lists and dicts"
        ]
    )


def from_plain(value: Any) -> Any:
    """Return the value from which `to_plain` made a plain one."""
    if isinstance(value, list):
        return [from_plain(each) for each in value]
    if isinstance(value, dict):
        if _MARK in value:
            marked = value[_MARK]
            return UNSIGNED if marked == "unsigned" else tuple(map(from_plain, marked))
        return {key: from_plain(each) for key, each in value.items()}
    return value


def wanted_level() -> int:
    """Return the lowest level that this process's logging writes."""
    return logging.getLogger(ROOT).getEffectiveLevel()


class LinkHandler(logging.Handler):
    """Sends log records over the link.

    Args:
        send: Sends a message; may be called from any thread.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record as text."""
        try:
            line = {
                "name": record.name,
                "level": record.levelno,
                "text": record.getMessage(),
                "error": _formatter.formatException(record.exc_info) if record.exc_info else None,
                "created": record.created,
            }
        except Exception:
            self.handleError(record)
            return
        self._send(("log", line))


def write_line(line: dict[str, Any]) -> None:
    """Write a line from the keeper to this process's log."""
    logger = logging.getLogger(line["name"])
    if not logger.isEnabledFor(line["level"]):
        return
    record = logger.makeRecord(
        line["name"], line["level"], "(keeper)", 0, line["text"], (), None, "keeper"
    )
    record.created, record.exc_text = line["created"], line["error"]
    record.msecs = (record.created % 1) * 1000
    logger.handle(record)
