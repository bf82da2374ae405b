"""A message in the audit: its receives, and the starts of its task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.soak.delays import call_patience, client_patience
from tests.soak.model import Call, Entry, Note, Queue

#: How long a step that follows at once may take, in seconds.
HASTE = 0.3
#: Outcomes after which the message is deleted, by task. Other tasks have only "end".
CLOSING = {"bad": {"end", "fail"}, "refuse": {"end", "reject"}, "again": {"end", "retry", "unsent"}}


@dataclass(kw_only=True)
class Run:
    """One start of a message's task. `outcome` is empty if it never ended."""

    task: str
    worker: str
    pid: int
    count: int
    start: float
    outcome: str = ""
    ended: float = math.inf

    def end(self, note: Note) -> None:
        """Record how it ended, unless it already has."""
        if not self.outcome:
            self.outcome, self.ended = note.what, note.at

    @property
    def is_closed(self) -> bool:
        """Whether it ended in a way that requires its message to be deleted."""
        return self.outcome in CLOSING.get(self.task, {"end"})

    @property
    def is_over(self) -> bool:
        """Whether it ended in a way that leaves its message in the queue."""
        return bool(self.outcome) and not self.is_closed

    def is_left_to_dead_letters(self, queue: Queue) -> bool:
        """Return whether its retry could not be sent, on a queue where kombu keeps the message."""
        return self.outcome == "unsent" and queue.max_receive_count is not None


@dataclass(kw_only=True)
class Delivery:
    """A message from one receive to the next.

    Attributes:
        task: The name of its task.
        changes: Calls by its handle to extend or release it.
        visible_at: When it became visible, according to the calls.
        ended_by: The release that made it visible, or None if its timeout ran out.
        has_arrived: Whether its worker's Celery got it from the keeper.
        run: The start of its task for this receive, or for an earlier receive by the same worker.
        next: The receive after it.
        previous: The receive before it.
        ahead: Receives, held by the same worker at the same time, of messages before it in its
            group.
        behind: The same for messages after it.
        refused_ahead: The calls of its worker to delete messages before it in its group that SQS
            refused, because they had become another worker's.
    """

    queue: Queue
    message_id: str
    task: str
    receive: Call
    entry: Entry
    changes: list[tuple[Call, Entry]] = field(default_factory=list)
    deletes: list[tuple[Call, Entry]] = field(default_factory=list)
    visible_at: float = math.inf
    ended_by: tuple[Call, Entry] | None = None
    has_arrived: bool = False
    run: Run | None = None
    next: Delivery | None = None
    previous: Delivery | None = None
    ahead: list[Delivery] = field(default_factory=list)
    behind: list[Delivery] = field(default_factory=list)
    refused_ahead: list[Call] = field(default_factory=list)

    @property
    def timeout(self) -> int:
        """How long its receive hid it, in seconds."""
        return self.entry.timeout or self.queue.visibility_timeout

    @property
    def patience(self) -> float:
        """How long its worker's clients wait for an answer to a call for it, in seconds."""
        return client_patience(self.queue.threshold)

    @property
    def longest_patience(self) -> float:
        """How long its worker waits for an answer that comes byte by byte, in seconds."""
        return call_patience(self.queue.threshold)

    def is_known(self, call: Call, entry: Entry) -> bool:
        """Return whether its worker learned in time that a call was done."""
        return entry.told and call.ended - call.started < self.patience

    @property
    def worker(self) -> str:
        """The worker that received it."""
        return self.receive.worker

    @property
    def count(self) -> int:
        """Its receive count."""
        return self.entry.count

    @property
    def releases(self) -> list[tuple[Call, Entry]]:
        """Its worker's tries to release it."""
        return self._changes_that(lambda entry: entry.timeout < self.queue.shortest)

    @property
    def extensions(self) -> list[tuple[Call, Entry]]:
        """Its worker's tries to extend it."""
        return self._changes_that(lambda entry: entry.timeout >= self.queue.shortest)

    def before(self) -> Iterator[Delivery]:
        """Yield the receives before it, the latest first."""
        each = self.previous
        while each is not None:
            yield each
            each = each.previous

    def concerns(self, run: Run) -> bool:
        """Return whether a run was started for it, or for an earlier receive of the same lease."""
        if run.worker != self.worker or run.count > self.count:
            return False
        return run.count == self.count or not self._came_after(run)

    def _came_after(self, run: Run) -> bool:
        """Return whether its worker had given up an earlier run by then."""
        is_over = run.is_over or run.is_left_to_dead_letters(self.queue)
        return (is_over and run.ended + HASTE < self.receive.done) or any(
            run.start <= call.started < self.receive.done
            for earlier in self.before()
            if earlier.worker == self.worker
            for call, _ in earlier.releases
        )

    def _changes_that(self, is_meant: Callable[[Entry], bool]) -> list[tuple[Call, Entry]]:
        return [
            (call, entry)
            for call, entry in self.changes
            if call.worker == self.worker and is_meant(entry)
        ]


@dataclass(kw_only=True)
class Message:
    """A message from its send to its end.

    Attributes:
        group: Its message group in a FIFO queue; empty elsewhere.
        sequence: Its sequence number, which grows within the group.
        copies: The sends of all messages for its task: this one, retries, and copies of a message
            that was received for the last time. SQS may not have accepted them.
        order_faults: Descriptions of runs that began before its turn.
    """

    message_id: str
    queue: Queue
    sent: Call
    task: str
    task_id: str
    deliveries: list[Delivery] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    expired: list[Note] = field(default_factory=list)
    deleted: tuple[Call, Entry] | None = None
    group: str = ""
    sequence: int = 0
    copies: list[Call] = field(default_factory=list)
    order_faults: list[str] = field(default_factory=list)

    def was_sent_again(self, delivery: Delivery, at: float) -> bool:
        """Return whether a worker may delete a message, because it has sent it again.

        It may do so before the task has started, if the message was received for the last time.
        """
        most = self.queue.max_receive_count
        is_last = most is not None and delivery.count >= most and not self.queue.is_fifo
        return (
            is_last
            and delivery.run is None
            and any(
                call.worker == delivery.worker and delivery.receive.done <= call.done <= at
                for call in self.copies
            )
        )
