"""What a worker's keeper has to know before its first message."""

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
        pid: Of the worker's main process, which the keeper watches.
        interval: The longest sleep of the keeper, in seconds.
        late_after: How late its rounds may be before that is reported, in seconds; None for its
            own choice.
        journal: Where it goes; None for none.
        identity: Whose journal it is: host, pid, boot, started.
        status: `host:port` of the status page; None for none.
        token: For the page's data. Never shown.
        name: Of the worker.
        level: Of the log lines that the worker wants.
        wants_all: Whether it wants every event, not only those that it needs.
        logs_events: Whether the keeper writes a line of the log for each event.
        began_at: When the worker began, in seconds of the keeper's clock.
        session: `module:function` of a function that returns a boto3 session; None for boto3's own.
        path: Where to look for that module, as the worker does.
    """

    pid: int
    interval: float = 1.0
    late_after: float | None = None
    journal: str | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    status: str | None = None
    token: str | None = field(default=None, repr=False)
    name: str = ""
    level: int = 0
    wants_all: bool = False
    logs_events: bool = True
    began_at: float | None = None
    session: str | None = None
    path: tuple[str, ...] = ()

    def message(self) -> Message:
        """Return it as a message."""
        return ("hello", VERSION, asdict(self))


def read_hello(message: Message) -> Hello:
    """Return what a worker's first message says.

    Raises:
        BrokenLink: It is none of this version.
    """
    match message:
        case ["hello", version, dict(values)] if version == VERSION:
            return Hello(**{**values, "path": tuple(values.get("path", ()))})
        case ["hello", version, *_]:
            raise BrokenLink(
                f"the worker speaks version {version!r} of the link, this keeper {VERSION}: "
                "the package was replaced under the running worker; restart it"
            )
    raise BrokenLink("the first message of the link is no hello")
