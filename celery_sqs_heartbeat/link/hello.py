"""The first message that a worker sends its keeper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.messages import VERSION


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
