"""Accounts for every message: it was done once, done again with a cause, or lost.

SQS counts every receive, so each one that started no task needs a cause, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.soak.causes import cause_of
from tests.soak.messages import Delivery, Message, read_messages
from tests.soak.records import Records
from tests.soak.releases import GRACE, LOST_SECONDS, note_unread_answers, was_stopped
from tests.soak.table import DISCONNECTED, WAITED_IN_SHUTDOWN, Cause, Row
from tests.soak.workers import Worker, read_workers

ONCE = "done once"
#: Reasons for a release that say nothing about the message.
_HANDED_ON = (WAITED_IN_SHUTDOWN, DISCONNECTED)


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
    workers = read_workers(records)
    return [_judge(message, records, workers) for message in read_messages(records, workers)]


def _judge(message: Message, records: Records, workers: Mapping[str, Worker]) -> Verdict:
    verdict = Verdict(message=message)
    causes: dict[int, Cause | None] = {}
    for delivery in message.deliveries:
        if delivery.next is not None:
            cause = causes[delivery.count] = cause_of(delivery, workers)
            verdict.redeliveries.append(str(cause or "nothing"))
            if cause is None:
                fault = f"became visible after receive {delivery.count} without a cause"
                verdict.faults.append(fault)
            else:
                verdict.rows.append(cause.row)
    verdict.faults += message.order_faults
    _judge_runs(verdict, causes, workers)
    _judge_deletes(verdict)
    verdict.account = _account(verdict, records)
    if message.message_id in records.dead and message.deliveries:
        last = message.deliveries[-1]
        cause = causes[last.count] = cause_of(last, workers)
        if cause is None:
            fault = f"became a dead letter after receive {last.count} without a cause"
            verdict.faults.append(fault)
        elif _was_handed_around(last, cause):
            verdict.faults.append(f"became a dead letter because it was handed around: {cause}")
    _judge_idle_receives(verdict, causes)
    return verdict


def _judge_runs(
    verdict: Verdict, causes: Mapping[int, Cause | None], workers: Mapping[str, Worker]
) -> None:
    message = verdict.message
    deliveries = {delivery.count: delivery for delivery in message.deliveries}
    for earlier, later in zip(message.runs, message.runs[1:], strict=False):
        if earlier.count == later.count:
            verdict.faults.append(f"receive {earlier.count} was run twice")
            continue
        worker = workers[earlier.worker]
        # May a worker run a message again that it has already started?
        was_over = (
            earlier.is_left_to_dead_letters
            or earlier.is_over
            or was_stopped(deliveries[earlier.count], earlier)
            or worker.killed(earlier.pid, earlier.start, later.start) is not None
            or (worker.info.cancels and worker.lost_connection(earlier.start, later.start))
        )
        if earlier.worker == later.worker and not was_over:
            verdict.faults.append(f"{earlier.worker} ran it again although it knew of it")
        # The first receive by another worker took the message away from the earlier run. A
        # receive by the same worker continued its lease.
        between = [each for each in message.deliveries if earlier.count <= each.count < later.count]
        taken = (each for each in between if each.next and each.next.worker is not worker)
        verdict.causes.append(str(causes[next(taken, between[-1]).count] or "nothing"))


def _judge_deletes(verdict: Verdict) -> None:
    message = verdict.message
    for delivery in message.deliveries:
        for call, entry in delivery.deletes:
            # A task that is acked early is acked when the pool accepts it, before it starts.
            is_due = message.task == "early" or _why_deleted(delivery, call.started)
            if entry.done and not is_due:
                verdict.faults.append(f"was deleted as receive {delivery.count} without a reason")
                return


def _judge_idle_receives(verdict: Verdict, causes: Mapping[int, Cause | None]) -> None:
    """Find out why receives of a message started no task.

    Args:
        causes: Why the message became visible after each receive. If nothing explains that, it is
            a fault already.
    """
    deliveries = verdict.message.deliveries
    # SQS counts a receive that is not recorded, too.
    counted = range(1, deliveries[-1].count + 1) if deliveries else ()
    whys: dict[int, str | None] = dict.fromkeys(counted)
    for delivery in deliveries:
        run, at = delivery.run, delivery.receive.done
        if delivery.is_run:
            del whys[delivery.count]
        elif run is not None and at < delivery.worker.info.ended:
            still = run.ended > at
            whys[delivery.count] = "its task still ran" if still else "its task had ended"
        elif cause := causes.get(delivery.count):
            whys[delivery.count] = cause.row.name
        elif delivery.next is None:
            whys[delivery.count] = _why_gone(delivery)
    verdict.unexecuted = [why or "nothing" for why in whys.values()]
    unexplained = [str(count) for count, why in whys.items() if not why and count not in causes]
    if unexplained:
        verdict.faults.append(
            f"was received {deliveries[-1].count} times, receive {', '.join(unexplained)} "
            "without an execution and without a cause"
        )


def _account(verdict: Verdict, records: Records) -> str:
    message = verdict.message
    if message.message_id in records.left:
        verdict.faults.append("was still in its queue at the end")
        return "left in its queue"
    if message.message_id in records.dead:
        most = message.queue.max_receive_count
        if most is None or len(message.deliveries) < most:
            verdict.faults.append("became a dead letter too early")
        return "dead letter"
    if message.deleted is None:
        verdict.faults.append("is gone, and no one deleted it")
    if any(run.outcome == "end" for run in message.runs):
        if verdict.duplicates:
            return "done again"
        return ONCE if len(message.runs) == 1 else "done once, started more than once"
    if any(run.is_closed for run in message.runs):
        return "failed as intended, and deleted"
    if message.deleted and (why := _why_gone(message.deliveries[-1])):
        return why
    verdict.faults.append("was lost: deleted and never done")
    return "lost"


def _why_gone(last: Delivery) -> str | None:
    """Return why its last worker deleted a message that it may not have run, if it had a reason."""
    message = last.message
    if message.deleted is None:
        return None
    deleted_at = message.deleted[0].started
    if message.task == "early" and _was_cut_short(last, deleted_at):
        return "lost by design: acked before it ran, and its process was killed"
    return _why_deleted(last, deleted_at)


def _why_deleted(delivery: Delivery, at: float) -> str | None:
    """Return the reason that a worker had by then to delete a message, if it had one."""
    message, name = delivery.message, delivery.receive.worker
    for run in message.runs:
        is_its_own = run.worker == name and run.count <= delivery.count
        if is_its_own and run.is_closed and run.ended <= at:
            return "its task had ended"
    if any(note.worker == name and note.count <= delivery.count for note in message.expired):
        return "expired"
    # It may do so before the task has started, if the message was received for the last time.
    most = message.queue.max_receive_count
    is_last = most is not None and delivery.count >= most and not message.queue.is_fifo
    was_sent_again = any(
        call.worker == name and delivery.receive.done <= call.done <= at for call in message.copies
    )
    return "sent again" if is_last and delivery.run is None and was_sent_again else None


def _was_cut_short(delivery: Delivery, acked_at: float) -> bool:
    """Return whether the process of a task that was acked early ended before the task."""
    run, worker = delivery.run, delivery.worker
    since = acked_at - GRACE if run is None else run.start
    if run is None and worker.did(["pool-kill"], since - LOST_SECONDS, acked_at):
        return True
    if run is not None and worker.killed(run.pid, since, math.inf):
        return True
    ends = worker.did(["kill", "cold", "soft"], since - LOST_SECONDS, math.inf)
    return bool(ends) and worker.info.ended >= since


def _was_handed_around(last: Delivery, cause: Cause) -> bool:
    """Return whether a dead letter was released on its last receive and not sent again.

    It may be released if SQS does not confirm the send, or if a keeper died meanwhile
    (docs/limits.md, "Dead letters that never ran").
    """
    if last.run is not None or cause.row not in _HANDED_ON:
        return False
    since, until, copies = last.receive.done, last.visible_at, last.message.copies
    sends = [call.started for call in copies if call.worker == last.receive.worker]
    deaths = [down.died_at for down in last.worker.downs]
    # No proxy sees a call on a connection that was silently dropped.
    has_lost_calls = bool(last.worker.did(["forget"], -math.inf, until))
    return not (has_lost_calls or any(since <= at <= until for at in (*sends, *deaths)))
