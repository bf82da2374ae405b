"""What a soak leaves behind: calls, ledger lines, harm. The audit knows nothing else.

All times are `time.monotonic()` seconds, which the processes of a machine share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RECEIVE = "ReceiveMessage"
CHANGE = "ChangeMessageVisibility"
DELETE = "DeleteMessage"
SEND = "SendMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue of the soak. Times in seconds.

    Attributes:
        visibility_timeout: Its own at first.
        timeouts: What that is changed to, if it is: each above its threshold.
    """

    name: str
    visibility_timeout: int
    max_receive_count: int | None = None
    timeouts: tuple[int, ...] = ()

    @property
    def threshold(self) -> float:
        """Extend when less than this is left: the default, a third of its first timeout.

        Workers are set to it where the timeout changes.
        """
        return self.visibility_timeout / 3

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of message groups."""
        return self.name.endswith(".fifo")

    @property
    def shortest(self) -> int:
        """What hides a message for less is a release, with a delay or without."""
        return min((self.visibility_timeout, *self.timeouts))


@dataclass(slots=True, kw_only=True)
class Entry:
    """What one call was to do to one message.

    Attributes:
        message_id: Of a receive or a send; the others go by their handle.
        timeout: For how long it was to be hidden, in seconds; 0 of a receive that did not say.
        done: The server said so, whether or not its answer arrived.
        told: The client was told so.
        headers: Celery's, of a send.
        group: Of a send to a FIFO queue, with the number that grows within it.
    """

    message_id: str = ""
    handle: str = ""
    count: int = 0
    timeout: int = 0
    done: bool = False
    told: bool = False
    headers: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    sequence: int = 0


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of one worker, as the proxy saw it.

    Attributes:
        forwarded: When it went to the server, or infinity.
        done: When the server had answered, or infinity.
        ended: When the client was told, or its connection dropped.
        fault: What the proxy did to it, empty for nothing.
    """

    worker: str
    operation: str
    queue: str
    started: float
    forwarded: float = math.inf
    done: float = math.inf
    ended: float = math.inf
    fault: str = ""
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line of the ledger: what a task, or a worker's main process, did."""

    what: str
    at: float
    worker: str
    pid: int
    key: str = ""
    message_id: str = ""
    count: int = 0


@dataclass(slots=True, kw_only=True)
class Harm:
    """Something done to a worker, or to all where it names none. `until` where it takes time.

    Attributes:
        died: Whether the process that stood still was ended, not let go on.
        as_it_starts: Whether that process may not have been through with its start.
    """

    what: str
    at: float
    worker: str
    pid: int = 0
    until: float = math.inf
    died: bool = False
    as_it_starts: bool = False


@dataclass(slots=True, kw_only=True)
class WorkerInfo:
    """A worker process from its start to its end, which is infinite while it runs.

    Attributes:
        keeper_ended: When its last keeper had ended, too.
        cancels: Whether it cancels what runs when it loses its connection.
        on_lost: Its `sqs_heartbeat_on_lost`.
        breaks: Whether its pool is told to grow, and can't: then it ends by itself.
        settings: Those that were drawn for it, for its trace.
    """

    name: str
    pool: str
    began: float
    ended: float = math.inf
    keeper_ended: float = math.inf
    cancels: bool = False
    on_lost: str = "warn"
    breaks: bool = False
    log: str = ""
    settings: str = ""

    @property
    def terminates(self) -> bool:
        """Whether it stops a task whose lease is lost."""
        return self.on_lost == "terminate"

    @property
    def drops(self) -> bool:
        """Whether it starts no task whose lease has expired."""
        return self.on_lost != "warn"


@dataclass(kw_only=True)
class Records:
    """Everything that was written down.

    Attributes:
        unrepeated: Message ids by worker whose log says that a release of it is not tried again.
        left: Ids of messages that were still in a queue at the end, by queue name.
        dead: Ids of messages in dead-letter queues.
    """

    queues: Mapping[str, Queue]
    calls: list[Call] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    harms: list[Harm] = field(default_factory=list)
    workers: dict[str, WorkerInfo] = field(default_factory=dict)
    unrepeated: set[tuple[str, str]] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
