"""The records of a soak: calls, ledger lines, harm. The audit reads nothing else.

All times are `time.monotonic()` seconds, which the processes of a machine share.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RECEIVE = "ReceiveMessage"
CHANGE = "ChangeMessageVisibility"
DELETE = "DeleteMessage"
SEND = "SendMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue of the soak. Times in seconds."""

    name: str
    visibility_timeout: int
    max_receive_count: int | None = None

    @property
    def threshold(self) -> float:
        """Extend when less than this is left: the default, a third of the timeout."""
        return self.visibility_timeout / 3

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of message groups."""
        return self.name.endswith(".fifo")


#: Two plain queues, one queue with dead letters, and a FIFO queue. Their timeouts are short, so
#: leases are always due, and longer than any delay of a release: a call that hides a message for
#: less is a release.
QUEUES: Mapping[str, Queue] = {
    queue.name: queue
    for queue in (
        Queue(name="fast", visibility_timeout=4),
        Queue(name="slow", visibility_timeout=6),
        Queue(name="strict", visibility_timeout=5, max_receive_count=6),
        Queue(name="steps.fifo", visibility_timeout=6),
    )
}


@dataclass(slots=True, kw_only=True)
class Entry:
    """One message in one call.

    Attributes:
        message_id: Set for a receive or a send. Other calls have only the handle.
        timeout: How long the call hides the message, in seconds; 0 for a receive that requests no
            timeout.
        done: Whether the server confirmed it, even if its answer did not arrive.
        told: Whether the client received that confirmation.
        refused: Whether the client learned that the message is no longer its own.
        headers: Celery's headers, for a send.
        group: The message group, for a send to a FIFO queue.
        sequence: The number that grows within the group.
    """

    message_id: str = ""
    handle: str = ""
    count: int = 0
    timeout: int = 0
    done: bool = False
    told: bool = False
    refused: bool = False
    headers: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    sequence: int = 0


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of one worker, as the proxy saw it.

    Attributes:
        forwarded: When it went to the server, or infinity.
        done: When the server had answered, or infinity.
        ended: When the client had the answer, or its connection was dropped.
        fault: What the proxy did to it; empty for nothing.
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
    """One line of the ledger: what a task or a worker's main process did."""

    what: str
    at: float
    worker: str
    pid: int
    key: str = ""
    message_id: str = ""
    count: int = 0


@dataclass(slots=True, kw_only=True)
class Harm:
    """Something done to a worker, or to all workers if it names none.

    Attributes:
        until: When it ended, if it took time.
        died: Whether the stopped process was killed instead of continued.
        as_it_starts: Whether that process may still have been starting.
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
        keeper_ended: When its last keeper had ended.
        cancels: Whether it cancels running tasks when it loses its connection.
        on_lost: Its `sqs_heartbeat_on_lost`.
        settings: The settings that were drawn for it, for its trace.
    """

    name: str
    pool: str
    began: float
    ended: float = math.inf
    keeper_ended: float = math.inf
    cancels: bool = False
    on_lost: str = "warn"
    log: str = ""
    settings: str = ""


@dataclass(kw_only=True)
class Records:
    """Everything that a soak records.

    Attributes:
        unrepeated: Pairs of worker and message id, where the worker's log says that a release of
            the message is not tried again.
        left: Ids of messages that were still in a queue at the end.
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

    def note(self, what: str, worker: str = "", pid: int = 0) -> Harm:
        """Record something that is about to be done to a worker, or to all workers."""
        harm = Harm(what=what, at=time.monotonic(), worker=worker, pid=pid)
        self.harms.append(harm)
        return harm
