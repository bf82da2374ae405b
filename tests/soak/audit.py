"""Accounts for every message: it was done once, done again with a cause, or lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.soak.batches import note_lost_of_batches
from tests.soak.causes import cause_of
from tests.soak.cut import note_unread_answers
from tests.soak.delivery import Delivery, Message, Run
from tests.soak.idle import idle_receives, was_handed_around, why_deleted, why_gone
from tests.soak.messages import read_messages
from tests.soak.model import Records
from tests.soak.releases import was_stopped
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
    _judge_deletes(message, verdict)
    verdict.account = _account(message, verdict, records, histories)
    if message.message_id in records.dead and message.deliveries:
        last = message.deliveries[-1]
        cause = causes[last.count] = cause_of(last, histories)
        if cause is None:
            verdict.faults.append(
                f"became a dead letter after receive {last.count} without a cause"
            )
        elif was_handed_around(last, message, cause, histories[last.worker]):
            verdict.faults.append(f"became a dead letter because it was handed around: {cause}")
    idle = idle_receives(message, causes, histories)
    verdict.unexecuted = [why or "nothing" for why in idle.values()]
    # Of a receive in `causes`, it is a fault already that nothing explains what followed it.
    unexplained = [str(count) for count, why in idle.items() if not why and count not in causes]
    if unexplained:
        verdict.faults.append(
            f"was received {message.deliveries[-1].count} times, receive {', '.join(unexplained)} "
            "without an execution and without a cause"
        )
    return verdict


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
        between = [each for each in message.deliveries if earlier.count <= each.count < later.count]
        taken = next(
            (each for each in between if each.next and each.next.worker != earlier.worker),
            between[-1],
        )
        verdict.causes.append(str(causes[taken.count] or "nothing"))


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


def _judge_deletes(message: Message, verdict: Verdict) -> None:
    for delivery in message.deliveries:
        for call, entry in delivery.deletes:
            # That one is acked when the pool accepts it, shortly before it starts.
            is_due = message.task == "early" or why_deleted(delivery, message, call.started)
            if entry.done and not is_due:
                verdict.faults.append(f"was deleted as receive {delivery.count} without a reason")
                return


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
    if any(run.is_closed for run in message.runs):
        return "failed as intended, and deleted"
    if message.deleted and (why := why_gone(message, histories[message.deleted[0].worker])):
        return why
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
