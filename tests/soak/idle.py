"""Why a receive of a message started no task. SQS counts every receive, so each needs a cause."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.soak.delivery import Delivery, Message
from tests.soak.releases import GRACE, LOST_SECONDS
from tests.soak.table import DISCONNECTED, WAITED_IN_SHUTDOWN, Cause
from tests.soak.worker_history import WorkerHistory

#: Reasons for a release that say nothing about the message.
_HANDED_ON = (WAITED_IN_SHUTDOWN, DISCONNECTED)


def idle_receives(
    message: Message, causes: Mapping[int, Cause | None], histories: Mapping[str, WorkerHistory]
) -> dict[int, str | None]:
    """Return why receives of a message started no task, or None if nothing explains it.

    Args:
        causes: Why the message became visible after each receive.
    """
    # SQS counts a receive that is not recorded, too.
    counted = range(1, message.deliveries[-1].count + 1) if message.deliveries else ()
    whys: dict[int, str | None] = dict.fromkeys(counted)
    for delivery in message.deliveries:
        history, run, at = histories[delivery.worker], delivery.run, delivery.receive.done
        if run is not None and run.count == delivery.count:
            del whys[delivery.count]
        elif run is not None and at < history.info.ended:
            why = "its task still ran" if run.ended > at else "its task had ended"
            whys[delivery.count] = why
        elif cause := causes.get(delivery.count):
            whys[delivery.count] = cause.row.name
        elif delivery.next is None:
            whys[delivery.count] = why_gone(message, history)
    return whys


def why_gone(message: Message, history: WorkerHistory) -> str | None:
    """Return why its last worker deleted a message that it may not have run, if it had a reason."""
    if message.deleted is None:
        return None
    last, deleted_at = message.deliveries[-1], message.deleted[0].started
    if message.task == "early" and _was_cut_short(last, deleted_at, history):
        return "lost by design: acked before it ran, and its process was killed"
    return why_deleted(last, message, deleted_at)


def why_deleted(delivery: Delivery, message: Message, at: float) -> str | None:
    """Return the reason that a worker had by then to delete a message, if it had one."""
    for run in message.runs:
        is_its_own = run.worker == delivery.worker and run.count <= delivery.count
        if is_its_own and run.is_closed and run.ended <= at:
            return "its task had ended"
    if any(
        note.worker == delivery.worker and note.count <= delivery.count for note in message.expired
    ):
        return "expired"
    return "sent again" if message.was_sent_again(delivery, at) else None


def _was_cut_short(delivery: Delivery, acked_at: float, history: WorkerHistory) -> bool:
    """Return whether the process of a task that was acked early ended before the task."""
    run = delivery.run
    since = acked_at - GRACE if run is None else run.start
    if run is None and history.did(["pool-kill"], since - LOST_SECONDS, acked_at):
        return True
    if run is not None and history.killed(run.pid, since, math.inf):
        return True
    ends = history.did(["kill", "cold", "soft"], since - LOST_SECONDS, math.inf)
    return bool(ends) and history.info.ended >= since


def was_handed_around(
    delivery: Delivery, message: Message, cause: Cause, history: WorkerHistory
) -> bool:
    """Return whether a dead letter was released on its last receive and not sent again.

    It may be released if SQS does not confirm the send, or if a keeper died meanwhile
    (docs/limits.md, "Dead letters that never ran").

    Args:
        delivery: Its last receive.
        cause: Why it became visible after that.
    """
    if delivery.run is not None or cause.row not in _HANDED_ON:
        return False
    since, until = delivery.receive.done, delivery.visible_at
    sends = [call.started for call in message.copies if call.worker == delivery.worker]
    deaths = [down.died_at for down in history.downs]
    # No proxy sees a call on a connection that was silently dropped.
    has_lost_calls = bool(history.did(["forget"], -math.inf, until))
    return not (has_lost_calls or any(since <= at <= until for at in (*sends, *deaths)))
