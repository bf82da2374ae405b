"""Accounts for every message: it was done once, done again with a cause, or lost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.soak.batches import note_lost_of_batches
from tests.soak.causes import cause_of
from tests.soak.cut import note_unread_answers
from tests.soak.delivery import Delivery, Message, Run
from tests.soak.messages import read_messages
from tests.soak.model import Records
from tests.soak.releases import GRACE, LOST_SECONDS, was_stopped
from tests.soak.table import Cause, Row
from tests.soak.worker_history import WorkerHistory, read_histories

ONCE = "done once"


@dataclass(kw_only=True)
class Verdict:
    """What happened to a message.

    Attributes:
        account: The outcome, in a few words.
        causes: Why its task was started again, for each time, in order.
        redeliveries: Why it was received again, for each time.
        rows: The rows of the table that explain the redeliveries.
        unexecuted: Why a receive did not start its task, for each that did not.
        faults: Events that nothing explains.
    """

    message: Message
    account: str = ""
    causes: list[str] = field(default_factory=list)
    redeliveries: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    unexecuted: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def duplicates(self) -> int:
        """How often it was done after the first time."""
        return max(0, sum(run.outcome == "end" for run in self.message.runs) - 1)


def audit(records: Records) -> list[Verdict]:
    """Return a verdict on every message."""
    note_unread_answers(records)
    histories, messages = read_histories(records), read_messages(records)
    note_lost_of_batches(messages, histories)
    return [_judge(message, records, histories) for message in messages]


def _judge(message: Message, records: Records, histories: dict[str, WorkerHistory]) -> Verdict:
    verdict = Verdict(message=message)
    causes: dict[int, Cause | None] = {}
    for delivery in message.deliveries:
        if delivery.next is not None:
            cause = causes[delivery.count] = cause_of(delivery, histories)
            verdict.redeliveries.append(str(cause or "nothing"))
            if cause is None:
                verdict.faults.append(
                    f"became visible after receive {delivery.count} without a cause"
                )
            else:
                verdict.rows.append(cause.row)
    verdict.faults += message.order_faults
    _judge_runs(message, verdict, causes, histories)
    _judge_deletes(message, verdict, histories)
    verdict.account = _account(message, verdict, records, histories)
    if message.message_id in records.dead and message.deliveries:
        last = message.deliveries[-1]
        causes[last.count] = cause_of(last, histories)
        if causes[last.count] is None:
            verdict.faults.append(
                f"became a dead letter after receive {last.count} without a cause"
            )
    verdict.unexecuted = [
        str(causes.get(delivery.count) or _why_not_executed(delivery, message, verdict))
        for delivery in message.deliveries
        if delivery.run is None or delivery.run.count != delivery.count
    ]
    return verdict


def _why_not_executed(delivery: Delivery, message: Message, verdict: Verdict) -> str:
    """Return why the last receive of a message did not start its task."""
    if delivery.next is not None:
        return "nothing"
    if delivery.run is not None:
        return "its task had begun with an earlier receive"
    return "expired" if message.expired else verdict.account


def _judge_runs(
    message: Message,
    verdict: Verdict,
    causes: dict[int, Cause | None],
    histories: dict[str, WorkerHistory],
) -> None:
    deliveries = {delivery.count: delivery for delivery in message.deliveries}
    for earlier, later in zip(message.runs, message.runs[1:], strict=False):
        if earlier.count == later.count:
            verdict.faults.append(f"receive {earlier.count} was run twice")
            continue
        is_left = earlier.is_left_to_dead_letters(message.queue)
        was_over = is_left or _was_over(earlier, later, deliveries[earlier.count], histories)
        if earlier.worker == later.worker and not was_over:
            verdict.faults.append(f"{earlier.worker} ran it again although it knew of it")
        # The first receive by another worker took the message away from the earlier run. A
        # receive by the same worker continued its lease.
        between = [count for count in causes if earlier.count <= count < later.count]
        taken = next(
            (count for count in between if deliveries[count + 1].worker != earlier.worker),
            between[-1],
        )
        verdict.causes.append(str(causes[taken] or "nothing"))


def _was_over(
    earlier: Run, later: Run, delivery: Delivery, histories: dict[str, WorkerHistory]
) -> bool:
    """Return whether a worker may run a message again that it has already started."""
    history = histories[earlier.worker]
    return (
        earlier.is_over
        or was_stopped(delivery, earlier, history)
        or history.killed(earlier.pid, earlier.start, later.start) is not None
        or (history.info.cancels and history.lost_connection(earlier.start, later.start))
    )


def _judge_deletes(message: Message, verdict: Verdict, histories: dict[str, WorkerHistory]) -> None:
    for delivery in message.deliveries:
        for call, entry in delivery.deletes:
            if entry.done and not _may_delete(message, delivery, call.started, histories):
                verdict.faults.append(f"was deleted as receive {delivery.count} without a reason")
                return


def _may_delete(
    message: Message, delivery: Delivery, at: float, histories: dict[str, WorkerHistory]
) -> bool:
    if message.expired or message.was_sent_again(delivery, at):
        return True
    if message.task == "early":
        # Acked when the pool accepts it, shortly before the task starts.
        return True
    return any(
        run.worker == delivery.worker
        and run.count <= delivery.count
        and run.is_closed
        and run.ended <= at
        for run in message.runs
    )


def _account(
    message: Message, verdict: Verdict, records: Records, histories: dict[str, WorkerHistory]
) -> str:
    if message.message_id in records.left or message.message_id in records.dead:
        return _account_kept(message, verdict, records)
    outcomes = [run.outcome for run in message.runs]
    if message.deleted is None:
        verdict.faults.append("is gone, and no one deleted it")
    if "end" in outcomes:
        if verdict.duplicates:
            return "done again"
        return ONCE if len(message.runs) == 1 else "done once, started more than once"
    if message.expired:
        return "expired"
    if message.deleted and message.was_sent_again(
        message.deliveries[-1], message.deleted[0].started
    ):
        return "sent again"
    if any(run.is_closed for run in message.runs):
        return "failed as intended, and deleted"
    if message.task == "early" and _was_cut_short(message, histories):
        return "lost by design: acked before it ran, and its process was killed"
    verdict.faults.append("was lost: deleted and never done")
    return "lost"


def _account_kept(message: Message, verdict: Verdict, records: Records) -> str:
    if message.message_id in records.left:
        verdict.faults.append("was still in its queue at the end")
        return "left in its queue"
    most = message.queue.max_receive_count
    if most is None or len(message.deliveries) < most:
        verdict.faults.append("became a dead letter too early")
    return "dead letter"


def _was_cut_short(message: Message, histories: dict[str, WorkerHistory]) -> bool:
    assert message.deleted is not None
    call = message.deleted[0]
    history = histories[call.worker]
    since = message.runs[-1].start if message.runs else call.started - GRACE
    if message.runs and history.killed(message.runs[-1].pid, since, math.inf):
        return True
    if not message.runs and history.did(["pool-kill"], since - LOST_SECONDS, since + GRACE):
        return True
    ends = history.did(["kill", "cold", "soft"], since - LOST_SECONDS, math.inf)
    return bool(ends) and history.info.ended >= since
