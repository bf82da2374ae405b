"""Accounts for every message: done once, or again with a cause, or lost: then it says so."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.soak.batches import note_lost
from tests.soak.causes import cause_of
from tests.soak.cut import note_unread_answers
from tests.soak.delivery import Delivery, Message, Run
from tests.soak.latecomers import note_waits
from tests.soak.messages import read_messages
from tests.soak.model import Records
from tests.soak.releases import GRACE, LOST_SECONDS, was_stopped
from tests.soak.table import Cause, Row
from tests.soak.worker_history import WorkerHistory, read_lives

ONCE = "done once"


@dataclass(kw_only=True)
class Verdict:
    """What became of a message.

    Attributes:
        account: In one word or a few.
        causes: Of each time that its task was begun again, in order.
        comebacks: Causes of each time that it was received again.
        rows: Those of the table that explain these, where something does.
        faults: What nothing explains.
    """

    message: Message
    account: str = ""
    causes: list[str] = field(default_factory=list)
    comebacks: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def duplicates(self) -> int:
        """How often it was done beyond the first."""
        return max(0, sum(run.outcome == "end" for run in self.message.runs) - 1)


def audit(records: Records) -> list[Verdict]:
    """Return a verdict on every message."""
    note_unread_answers(records)
    lives, messages = read_lives(records), read_messages(records)
    note_waits(messages, lives)
    note_lost(messages, lives)
    return [_judge(message, records, lives) for message in messages]


def _judge(message: Message, records: Records, lives: dict[str, WorkerHistory]) -> Verdict:
    verdict = Verdict(message=message)
    causes: dict[int, Cause | None] = {}
    for tenure in message.tenures:
        if tenure.next is not None:
            cause = causes[tenure.count] = cause_of(tenure, lives)
            verdict.comebacks.append(str(cause or "nothing"))
            if cause is None:
                verdict.faults.append(f"came back after receive {tenure.count} without a cause")
            else:
                verdict.rows.append(cause.row)
    verdict.faults += message.order_faults
    _judge_runs(message, verdict, causes, lives)
    _judge_deletes(message, verdict, lives)
    verdict.account = _account(message, verdict, records, lives)
    return verdict


def _judge_runs(
    message: Message,
    verdict: Verdict,
    causes: dict[int, Cause | None],
    lives: dict[str, WorkerHistory],
) -> None:
    tenures = {tenure.count: tenure for tenure in message.tenures}
    for earlier, later in zip(message.runs, message.runs[1:], strict=False):
        if earlier.count == later.count:
            verdict.faults.append(f"receive {earlier.count} was run twice")
            continue
        is_left = earlier.is_left_to_dead_letters(message.queue)
        was_over = is_left or _was_over(earlier, later, tenures[earlier.count], lives)
        if earlier.worker == later.worker and not was_over:
            verdict.faults.append(f"{earlier.worker} ran it again, which knew of it")
        # The first of these took the message away from the earlier run; a receive that
        # went on with the earlier one's lease did not.
        between = [count for count in causes if earlier.count <= count < later.count]
        taken = next(
            (count for count in between if tenures[count + 1].worker != earlier.worker),
            between[-1],
        )
        verdict.causes.append(str(causes[taken] or "nothing"))


def _was_over(earlier: Run, later: Run, tenure: Delivery, lives: dict[str, WorkerHistory]) -> bool:
    """Return whether a worker may run a message again after it had begun to."""
    life = lives[earlier.worker]
    return (
        earlier.is_over
        or was_stopped(tenure, earlier, life)
        or life.killed(earlier.pid, earlier.start, later.start) is not None
        or (life.info.cancels and life.lost_connection(earlier.start, later.start))
    )


def _judge_deletes(message: Message, verdict: Verdict, lives: dict[str, WorkerHistory]) -> None:
    for tenure in message.tenures:
        for call, entry in tenure.deletes:
            if entry.done and not _may_delete(message, tenure, call.started, lives):
                verdict.faults.append(f"was deleted as receive {tenure.count} without a reason")
                return


def _may_delete(
    message: Message, tenure: Delivery, at: float, lives: dict[str, WorkerHistory]
) -> bool:
    if message.expired:
        return True
    if message.task == "early":
        # Acked when the pool takes it: shortly before it starts.
        return True
    return any(
        run.worker == tenure.worker
        and run.count <= tenure.count
        and run.is_closed
        and run.ended <= at
        for run in message.runs
    )


def _account(
    message: Message, verdict: Verdict, records: Records, lives: dict[str, WorkerHistory]
) -> str:
    if message.message_id in records.left or message.message_id in records.dead:
        return _account_kept(message, verdict, records)
    outcomes = [run.outcome for run in message.runs]
    if message.deleted is None:
        verdict.faults.append("is gone, and nobody deleted it")
    if "end" in outcomes:
        if verdict.duplicates:
            return "done again"
        return ONCE if len(message.runs) == 1 else "done once, but begun more often"
    if message.expired:
        return "expired"
    if any(run.is_closed for run in message.runs):
        return "ended as it should, without success"
    if message.task == "early" and _was_cut_short(message, lives):
        return "lost by design: acked before it ran, and its process was ended"
    verdict.faults.append("was lost: deleted and never done")
    return "lost"


def _account_kept(message: Message, verdict: Verdict, records: Records) -> str:
    if message.message_id in records.left:
        verdict.faults.append("was still in its queue at the end")
        return "left in its queue"
    most = message.queue.max_receive_count
    if most is None or len(message.tenures) < most:
        verdict.faults.append("became a dead letter too early")
    # Every receive of it has a cause of its own by now.
    return "dead letter"


def _was_cut_short(message: Message, lives: dict[str, WorkerHistory]) -> bool:
    assert message.deleted is not None
    call = message.deleted[0]
    life = lives[call.worker]
    since = message.runs[-1].start if message.runs else call.started - GRACE
    if message.runs and life.killed(message.runs[-1].pid, since, math.inf):
        return True
    if not message.runs and life.did(["pool-kill"], since - LOST_SECONDS, since + GRACE):
        return True
    ends = life.did(["kill", "cold", "soft"], since - LOST_SECONDS, math.inf)
    return bool(ends) and life.info.ended >= since
