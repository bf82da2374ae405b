"""A hand-made history of one message, for tests of the audit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tests.soak.audit import Verdict, audit
from tests.soak.model import (
    CHANGE,
    DELETE,
    RECEIVE,
    SEND,
    Call,
    Entry,
    Harm,
    Note,
    Queue,
    Records,
    WorkerInfo,
)

#: The faults of a message whose first receive was followed by another without a cause.
UNEXPLAINED = ["became visible after receive 1 without a cause"]
#: How long a call takes, in seconds.
CALL = 0.01
TIMEOUT = 6


@dataclass(kw_only=True)
class Story:
    """What happens to a message. Every method returns the story. Times are in seconds.

    Message "m" is sent at 0 to a queue that hides it for 6 s. A lease must be extended when less
    than 2 s are left. A worker is added when it is first named.

    Attributes:
        group: Its message group, which makes the queue a FIFO queue.
    """

    task: str = "work"
    pool: str = "prefork"
    max_receive_count: int | None = None
    timeouts: tuple[int, ...] = ()
    expires: str | None = None
    group: str = ""
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        queue = Queue(
            name=self._queue,
            visibility_timeout=TIMEOUT,
            max_receive_count=self.max_receive_count,
            timeouts=self.timeouts,
        )
        self.records = Records(queues={self._queue: queue})
        self._send("m")

    @property
    def _queue(self) -> str:
        return "q.fifo" if self.group else "q"

    def receive(
        self,
        worker: str,
        count: int,
        at: float,
        *,
        told: bool = True,
        seconds: int = TIMEOUT,
        answered: float = 0,
        message_id: str = "m",
    ) -> Story:
        """A worker receives the message, or another one, for `seconds`.

        Args:
            told: Whether the worker gets the answer.
            answered: When the worker gets the answer, if late.
        """
        entry = Entry(
            message_id=message_id,
            handle=f"{message_id}{count}",
            count=count,
            timeout=seconds,
            done=True,
            told=told,
        )
        self._call(RECEIVE, worker, at, entry)
        call = self.records.calls[-1]
        call.ended = answered or call.ended
        return self

    def hide(
        self,
        worker: str,
        count: int,
        at: float,
        seconds: int = TIMEOUT,
        *,
        fails: bool = False,
        told: bool = True,
        fault: str = "500",
    ) -> Story:
        """A worker extends or releases its lease. The answer may be lost."""
        is_reported = told and not fails
        entry = Entry(handle=f"m{count}", timeout=seconds, done=not fails, told=is_reported)
        return self._call(CHANGE, worker, at, entry, fault)

    def delete(
        self, worker: str, count: int, at: float, *, fails: bool = False, fault: str = "500"
    ) -> Story:
        """A worker deletes the message."""
        entry = Entry(handle=f"m{count}", done=not fails, told=not fails)
        return self._call(DELETE, worker, at, entry, fault)

    def run(
        self,
        worker: str,
        count: int,
        start: float,
        end: float = math.inf,
        outcome: str = "end",
        pid: int = 1,
    ) -> Story:
        """A worker runs the task, which may never end."""
        self.note(worker, "start", count, start, pid)
        return self.note(worker, outcome, count, end, pid) if end < math.inf else self

    def done_again(self) -> Story:
        """Worker b receives the message after its first timeout, and does it."""
        return self.receive("b", 2, 7.2).run("b", 2, 7.5, 8.0).delete("b", 2, 8.1)

    def receive_other(self, worker: str, at: float) -> Story:
        """A worker receives another message for the same task."""
        return self._send("other").receive(worker, 1, at, message_id="other")

    def ahead(self, worker: str, at: float, *, done: float, back: float = math.inf) -> Story:
        """A worker receives the message ahead of it in its group.

        Args:
            done: When it is deleted, after its task has succeeded.
            back: When its worker releases it, after a failure.
        """
        self._send("ahead", sequence=1)
        count = 1
        self.receive(worker, count, at, message_id="ahead")
        if back < math.inf:
            self.note(worker, "start", count, at + 0.1, 1, message_id="ahead")
            self.note(worker, "fail", count, back - 0.1, 1, message_id="ahead")
            entry = Entry(handle=f"ahead{count}", timeout=0, done=True, told=True)
            self._call(CHANGE, worker, back, entry)
            count += 1
            self.receive(worker, count, back + 0.1, message_id="ahead")
        self.note(worker, "start", count, done - 0.2, 1, message_id="ahead")
        self.note(worker, "end", count, done - 0.1, 1, message_id="ahead")
        deleted = Entry(handle=f"ahead{count}", done=True, told=True)
        return self._call(DELETE, worker, done, deleted)

    def lose_ahead(self, worker: str, at: float, *, other: str, refused: float) -> Story:
        """The message ahead of it expires while a worker runs it, and another one does it.

        Args:
            refused: When the first worker learns that its delete is refused.
        """
        self._send("ahead", sequence=1)
        self.receive(worker, 1, at, message_id="ahead")
        self.receive(other, 2, at + TIMEOUT, message_id="ahead")
        for each, count, done in ((other, 2, at + TIMEOUT + 0.2), (worker, 1, refused - 0.1)):
            self.note(each, "start", count, done - 0.1, 1, message_id="ahead")
            self.note(each, "end", count, done, 1, message_id="ahead")
        deleted = Entry(handle="ahead2", done=True, told=True)
        self._call(DELETE, other, at + TIMEOUT + 0.3, deleted)
        stale = Entry(handle="ahead1", refused=True)
        return self._call(DELETE, worker, refused - CALL, stale, fault="")

    def arrive(self, worker: str, count: int, at: float) -> Story:
        """A worker's Celery gets the message."""
        return self.note(worker, "arrive", count, at, 1)

    def expire(self, worker: str, count: int, at: float) -> Story:
        """A worker discards the message."""
        return self.note(worker, "expire", count, at, 1)

    def harm(
        self, what: str, worker: str, at: float, until: float = math.inf, pid: int = 0
    ) -> Story:
        """Something is done to a worker. A pause also stops its keeper."""
        if what == "pause":
            self.harm("keeper-pause", worker, at, until)
        if what == "break":
            until = at
            self.records.notes.append(Note(what="disconnect", at=at, worker=worker, pid=1))
        if what == "kill":
            self.end(worker, at)
        return self._note_harm(what, worker, at, until, pid=pid)

    def stop_without_keeper(self, worker: str, at: float, until: float) -> Story:
        """A worker is stopped, and its keeper continues."""
        return self._note_harm("pause", worker, at, until)

    def hang(
        self, worker: str, at: float, until: float, *, died: bool = True, young: bool = False
    ) -> Story:
        """A worker's keeper is stopped, until it is killed or continues."""
        return self._note_harm("keeper-pause", worker, at, until, died=died, as_it_starts=young)

    def logs_unrepeated(self, worker: str) -> Story:
        """A worker logs that a release is not tried again."""
        self.records.unrepeated.add((worker, "m"))
        return self

    def end(self, worker: str, at: float) -> Story:
        """A worker's process ends."""
        self._worker(worker).ended = at
        return self

    def cancels(self, worker: str) -> Story:
        """A worker is configured to cancel running tasks when it loses its connection."""
        self._worker(worker).cancels = True
        return self

    def terminates(self, worker: str) -> Story:
        """A worker is configured to stop a task whose lease is lost."""
        self._worker(worker).on_lost = "terminate"
        return self

    def drops(self, worker: str) -> Story:
        """A worker is configured to start no task whose lease has expired."""
        self._worker(worker).on_lost = "revoke"
        return self

    def breaks(self, worker: str) -> Story:
        """A worker's pool stops taking tasks after a while."""
        self._worker(worker).breaks = True
        return self

    def verdict(self) -> Verdict:
        """Return the audit's verdict on the message."""
        (verdict,) = (each for each in audit(self.records) if each.message.message_id == "m")
        return verdict

    def explained(self) -> Verdict:
        """Return the audit's verdict on the message, which must have no faults."""
        verdict = self.verdict()
        assert verdict.faults == []
        return verdict

    def send_again(self, worker: str, at: float, *, fails: bool = False) -> Story:
        """A worker sends a copy of the message."""
        return self._send("" if fails else "copy", worker=worker, at=at)

    def _send(
        self, message_id: str, *, sequence: int = 2, worker: str = "soak", at: float = 0.0
    ) -> Story:
        entry = Entry(
            message_id=message_id,
            headers={"id": "t", "task": f"proj.{self.task}", "expires": self.expires},
            done=bool(message_id),
            told=bool(message_id),
            group=self.group,
            sequence=sequence,
        )
        return self._call(SEND, worker, at, entry)

    def _call(
        self, operation: str, worker: str, at: float, entry: Entry, fault: str = "500"
    ) -> Story:
        if worker != "soak":
            self._worker(worker)
        self.records.calls.append(
            Call(
                worker=worker,
                operation=operation,
                queue=self._queue,
                started=at,
                forwarded=at if entry.done else math.inf,
                done=at + CALL if entry.done else math.inf,
                ended=at + CALL,
                fault="" if entry.done and entry.told else fault,
                entries=[entry],
            )
        )
        return self

    def note(
        self, worker: str, what: str, count: int, at: float, pid: int, *, message_id: str = "m"
    ) -> Story:
        """A process of a worker writes a line of the ledger."""
        self._worker(worker)
        self.records.notes.append(
            Note(
                what=what,
                at=at,
                worker=worker,
                pid=pid,
                key="t",
                message_id=message_id,
                count=count,
            )
        )
        return self

    def _note_harm(self, what: str, worker: str, at: float, until: float, **details: Any) -> Story:
        if worker:
            self._worker(worker)
        harm = Harm(what=what, worker=worker, at=at, until=until, **details)
        self.records.harms.append(harm)
        return self

    def _worker(self, name: str) -> WorkerInfo:
        info = WorkerInfo(name=name, pool=self.pool, began=-10.0)
        return self.records.workers.setdefault(name, info)
