"""The history of each message, put together from the records: its receives, runs and group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.soak.records import CHANGE, DELETE, RECEIVE, SEND, Call, Entry, Note, Queue, Records
from tests.soak.table import call_patience, client_patience
from tests.soak.workers import HASTE, Worker

#: Outcomes after which the message is deleted, by task. Other tasks have only "end".
CLOSING = {"bad": {"end", "fail"}, "refuse": {"end", "reject"}, "again": {"end", "retry", "unsent"}}
#: Within so many seconds, answers may be recorded in another order than SQS gave them.
_AT_ONCE = 0.02


@dataclass(kw_only=True)
class Run:
    """One start of a message's task. `outcome` is empty if it never ended."""

    message: Message
    worker: str
    pid: int
    count: int
    start: float
    outcome: str = ""
    ended: float = math.inf

    @property
    def is_closed(self) -> bool:
        """Whether it ended in a way that requires its message to be deleted."""
        return self.outcome in CLOSING.get(self.message.task, {"end"})

    @property
    def is_over(self) -> bool:
        """Whether it ended in a way that leaves its message in the queue."""
        return bool(self.outcome) and not self.is_closed

    @property
    def is_left_to_dead_letters(self) -> bool:
        """Whether its retry could not be sent, on a queue where kombu keeps the message."""
        return self.outcome == "unsent" and self.message.queue.max_receive_count is not None


@dataclass(kw_only=True, eq=False)
class Delivery:
    """A message from one receive to the next.

    Attributes:
        worker: The worker that received it.
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

    message: Message
    worker: Worker
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
    def queue(self) -> Queue:
        """The queue of its message."""
        return self.message.queue

    @property
    def timeout(self) -> int:
        """How long its receive hid it, in seconds."""
        return self.entry.timeout or self.queue.visibility_timeout

    @property
    def longest_patience(self) -> float:
        """How long its worker waits for an answer that comes byte by byte, in seconds."""
        return call_patience(self.queue.threshold)

    @property
    def count(self) -> int:
        """Its receive count."""
        return self.entry.count

    @property
    def is_run(self) -> bool:
        """Whether its task was started for this very receive."""
        return self.run is not None and self.run.count == self.count

    @property
    def own_deletes(self) -> list[Call]:
        """Its worker's tries to delete it."""
        return [call for call, _ in self.deletes if call.worker == self.receive.worker]

    @property
    def releases(self) -> list[tuple[Call, Entry]]:
        """Its worker's tries to release it."""
        return self._changes_that(lambda entry: entry.timeout < self.queue.visibility_timeout)

    @property
    def extensions(self) -> list[tuple[Call, Entry]]:
        """Its worker's tries to extend it."""
        return self._changes_that(lambda entry: entry.timeout >= self.queue.visibility_timeout)

    def is_known(self, call: Call, entry: Entry) -> bool:
        """Return whether its worker learned in time that a call was done."""
        return entry.told and call.ended - call.started < client_patience(self.queue.threshold)

    def before(self) -> Iterator[Delivery]:
        """Yield the receives before it, the latest first."""
        each = self.previous
        while each is not None:
            yield each
            each = each.previous

    def own_before(self) -> Iterator[Delivery]:
        """Yield the receives before it by the same worker, the latest first."""
        return (each for each in self.before() if each.worker is self.worker)

    def concerns(self, run: Run) -> bool:
        """Return whether a run was started for it, or for an earlier receive of the same lease."""
        if run.worker != self.receive.worker or run.count > self.count:
            return False
        return run.count == self.count or not self._came_after(run)

    def _came_after(self, run: Run) -> bool:
        """Return whether its worker had given up an earlier run by then."""
        is_over = run.is_over or run.is_left_to_dead_letters
        return (is_over and run.ended + HASTE < self.receive.done) or any(
            run.start <= call.started < self.receive.done
            for earlier in self.own_before()
            for call, _ in earlier.releases
        )

    def _changes_that(self, is_meant: Callable[[Entry], bool]) -> list[tuple[Call, Entry]]:
        return [
            (call, entry)
            for call, entry in self.changes
            if call.worker == self.receive.worker and is_meant(entry)
        ]


@dataclass(kw_only=True, eq=False)
class Message:
    """A message from its send to its end.

    Attributes:
        group: Its message group in a FIFO queue; empty elsewhere.
        sequence: Its sequence number, which grows within the group.
        copies: The sends of all messages for its task: this one, retries, and copies of a message
            that was received for the last time. SQS may not have accepted them.
        order_faults: Descriptions of runs that began before its turn. Nothing excuses that.
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

    def was_done_by(self, at: float) -> bool:
        """Return whether it had succeeded by then, and its delete had been sent to SQS."""
        ended = any(run.outcome == "end" and run.ended <= at for run in self.runs)
        return ended and self.deleted is not None and self.deleted[0].forwarded <= at


def read_messages(records: Records, workers: Mapping[str, Worker]) -> list[Message]:
    """Return every message that was sent, with everything that is known about it."""
    messages: dict[str, Message] = {}
    copies: dict[str, list[Call]] = defaultdict(list)
    for call in records.calls:
        if call.operation == SEND:
            entry, queue = call.entries[0], records.queues[call.queue]
            key = entry.headers["id"]
            copies[key].append(call)
            if entry.message_id:
                messages[entry.message_id] = Message(
                    message_id=entry.message_id,
                    queue=queue,
                    sent=call,
                    task=entry.headers["task"].rpartition(".")[2],
                    task_id=key,
                    group=entry.group if queue.is_fifo else "",
                    sequence=entry.sequence,
                    copies=copies[key],
                )
    _add_calls(records.calls, messages, workers)
    for note in sorted(records.notes, key=lambda note: note.at):
        if note.message_id:
            _add_note(messages[note.message_id], note)
    for message in messages.values():
        # By receive, not by time: a worker may start a message after the next receiver ran it.
        message.runs.sort(key=lambda run: run.count)
        for delivery in message.deliveries:
            _join(message, delivery)
    groups: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in sorted(messages.values(), key=lambda message: message.sequence):
        if message.group:
            groups[message.queue.name, message.group].append(message)
    for group in groups.values():
        for index, message in enumerate(group):
            _note_ahead(message, group[:index])
    return list(messages.values())


def _add_calls(
    calls: Iterable[Call], messages: Mapping[str, Message], workers: Mapping[str, Worker]
) -> None:
    received = [
        Delivery(
            message=messages[entry.message_id],
            worker=workers[call.worker],
            receive=call,
            entry=entry,
        )
        for call in calls
        if call.operation == RECEIVE
        for entry in call.entries
    ]
    for delivery in sorted(received, key=lambda delivery: delivery.count):
        deliveries = delivery.message.deliveries
        if deliveries:
            deliveries[-1].next = delivery
            delivery.previous = deliveries[-1]
        deliveries.append(delivery)
    by_handle = {delivery.entry.handle: delivery for delivery in received}
    for call in calls:
        if call.operation in (CHANGE, DELETE):
            for entry in call.entries:
                delivery = by_handle[entry.handle]
                made = delivery.changes if call.operation == CHANGE else delivery.deletes
                made.append((call, entry))


def _add_note(message: Message, note: Note) -> None:
    if note.what == "arrive":
        for delivery in message.deliveries:
            is_it = (delivery.receive.worker, delivery.count) == (note.worker, note.count)
            delivery.has_arrived |= is_it
    elif note.what == "expire":
        message.expired.append(note)
    elif note.what == "start":
        run = Run(
            message=message, worker=note.worker, pid=note.pid, count=note.count, start=note.at
        )
        message.runs.append(run)
    else:
        for run in message.runs:
            # A worker's main process records a stop for a task of any of its pool's processes.
            by_main = note.what == "stop" and run.worker == note.worker
            is_it = (run.worker, run.pid, run.count) == (note.worker, note.pid, note.count)
            if (by_main or is_it) and not run.outcome:
                run.outcome, run.ended = note.what, note.at


def _join(message: Message, delivery: Delivery) -> None:
    """Find out which run belongs to a receive, and when and why it became visible."""
    delivery.run = next((run for run in reversed(message.runs) if delivery.concerns(run)), None)
    if delivery.next is None:
        # SQS may carry out a delayed delete after one that was sent later.
        done = [(call, entry) for call, entry in delivery.deletes if entry.done]
        message.deleted = min(done, key=lambda each: each[0].forwarded, default=None)
    delivery.visible_at = delivery.receive.done + delivery.timeout
    changes = [
        (call, entry)
        for each in message.deliveries
        for call, entry in each.changes
        # An earlier call that was forwarded before the receive is what made it visible.
        if each.count <= delivery.count
        and entry.done
        and (each is delivery or call.forwarded > delivery.receive.done)
    ]
    until = delivery.next.receive.done if delivery.next else math.inf
    for call, entry in sorted(changes, key=lambda change: change[0].forwarded):
        # SQS may do a call only when the timeout has ended, and answer a receive just before.
        came_late = delivery.visible_at <= call.done and until <= call.done + _AT_ONCE
        if call.forwarded < min(delivery.visible_at, until) and not came_late:
            delivery.visible_at = call.done + entry.timeout
            is_extension = entry.timeout >= delivery.queue.visibility_timeout
            delivery.ended_by = None if is_extension else (call, entry)


def _note_ahead(message: Message, ahead: list[Message]) -> None:
    """Note what came before a message in its group, and runs that began before its turn."""
    for delivery in message.deliveries:
        for other in ahead:
            shared = [each for each in other.deliveries if _overlap(each, delivery)]
            delivery.ahead += shared
            for each in shared:
                each.behind.append(delivery)
            delivery.refused_ahead += [
                call
                for each in other.deliveries
                for call, entry in each.deletes
                if call.worker == delivery.receive.worker and entry.refused
            ]
    for run in message.runs:
        early = [each for each in ahead if not each.was_done_by(run.start)]
        if early:
            message.order_faults.append(
                f"began on {run.worker} as receive {run.count}, before {early[0].message_id} of "
                "its group was done and deleted"
            )


def _overlap(ahead: Delivery, delivery: Delivery) -> bool:
    """Return whether one worker held both receives at the same time."""
    starts = max(ahead.receive.done, delivery.receive.done)
    return ahead.worker is delivery.worker and starts < min(_end(ahead), _end(delivery))


def _end(delivery: Delivery) -> float:
    if delivery.next is not None:
        return delivery.next.receive.done
    return min((call.done for call, entry in delivery.deletes if entry.done), default=math.inf)
