"""Finds the reason why a worker released a message, if it had one."""

from __future__ import annotations

import math

from tests.soak.blocks import after, free, since_when
from tests.soak.delivery import HASTE, Delivery, Run
from tests.soak.gathering import WAIT
from tests.soak.table import (
    BROKEN,
    CUT_OFF_BY_SHUTDOWN,
    DISCONNECTED,
    GROUP_STOPPED,
    KILLED,
    NOT_HANDED_OVER,
    POOL_KILLED,
    RELEASED_BY_TASK,
    WAITED_IN_SHUTDOWN,
    Cause,
)
from tests.soak.worker_history import WorkerHistory

#: How long an immediate step of an idle worker may take on a busy machine, in seconds.
GRACE = 1.0
#: How long Celery may take to notice that a process of its pool is gone, in seconds: it looks
#: every 5 s and then waits 10 s for the process's last results (celery/concurrency/asynpool.py,
#: billiard's LOST_WORKER_TIMEOUT).
LOST_SECONDS = 20.0
#: How long a worker whose pool is broken may take to exit, in seconds, not counting the times in
#: which it was stopped: it waits for its tasks.
BROKEN_SECONDS = 20.0
#: Outcomes with which a task leaves its message in the queue by design.
BY_DESIGN = {
    "fail": Cause(RELEASED_BY_TASK, "it failed by design"),
    "reject": Cause(RELEASED_BY_TASK, "it was rejected by design"),
}
POOL_PROCESS_KILLED = Cause(POOL_KILLED, "its pool process was killed")


def why_released(delivery: Delivery, history: WorkerHistory, at: float) -> Cause | None:
    """Return why its worker or keeper released it at that time, or None if there is no reason."""
    why = why_released_by_the_same_keeper(delivery, history, at)
    return why or _why_its_next_keeper_did(delivery, history, at)


def why_released_by_the_same_keeper(
    delivery: Delivery, history: WorkerHistory, at: float
) -> Cause | None:
    """Return the same, unless the only reason is that the keeper before had died."""
    return (
        _why_its_keeper_did(delivery, history, at)
        or _why_its_worker_did(delivery, history, at)
        or _why_its_group_was_stopped(delivery, history, at)
    )


def _why_its_group_was_stopped(
    delivery: Delivery, history: WorkerHistory, at: float
) -> Cause | None:
    """Return whether its worker released or lost a message ahead of it, and it had not started.

    A message ahead that is released is released after this one, and judged on its own. If SQS
    refuses its delete, it has become another worker's.
    """
    run = delivery.run
    if run is not None and run.count == delivery.count:
        return None
    for each in delivery.ahead:
        if each.next is not None and each.receive.done <= at <= each.next.receive.done:
            return Cause(GROUP_STOPPED, f"{each.message_id[:8]} of its group was released")
    for call in delivery.refused_ahead:
        if call.ended <= at and free(call.ended, at, history.blocks) < GRACE + HASTE:
            return Cause(GROUP_STOPPED, "the delete of a message of its group was refused")
    return None


def _why_its_keeper_did(delivery: Delivery, history: WorkerHistory, at: float) -> Cause | None:
    """Return whether its worker was gone and none of its processes ran the task any more.

    If the worker had begun to delete the message, its keeper continues to delete it.
    """
    run = delivery.run
    if not history.was_killed or at < history.info.ended - HASTE:
        return None
    if any(call.worker == delivery.worker for call, _ in delivery.deletes):
        return None
    if run is not None and (run.start > at or at < run.ended < math.inf):
        return None
    if run is not None and run.outcome and not _may_not_know_end(run, history.info.ended, history):
        return None
    if delivery.receive.done > history.info.ended:
        return Cause(KILLED, "it arrived after its worker was killed")
    return history.gone.why


def _why_its_next_keeper_did(delivery: Delivery, history: WorkerHistory, at: float) -> Cause | None:
    """Return whether its keeper died before it had handed the message over.

    Its body died with that keeper. The next one releases it as soon as it has started.
    """
    if delivery.run is not None or delivery.has_arrived:
        return None
    for down in history.downs:
        tries = [call.started for call, _ in delivery.releases if call.started > down.died_at]
        was_held = delivery.receive.ended <= down.harm.at and down.died_at < at
        if was_held and free(down.died_at, min([at, *tries]), history.blocks) < GRACE:
            return Cause(NOT_HANDED_OVER, "its keeper died before it was handed over")
    return None


def _why_its_worker_did(delivery: Delivery, history: WorkerHistory, at: float) -> Cause | None:
    run = delivery.run
    if run is None:
        return _why_released_before_its_start(delivery, history, at)
    earlier = next((each for each in delivery.before() if each.count == run.count), None)
    # A run that began after this receive continues with its lease.
    if earlier and run.start < delivery.receive.done and was_stopped(earlier, run, history):
        why = _why_released_before_its_start(delivery, history, at)
        # A run that began after the lease had expired may have missed the order to stop. One that
        # failed before its worker could stop it has its message released by its present handle.
        failed_first = run.is_over and free(earlier.visible_at, run.ended, history.still) < HASTE
        if why or (run.start < earlier.visible_at and not failed_first):
            return why
    stops = history.stops(at, ["cold", "soft"])
    if run.start > at:
        # It was started after its release, which only a pool in a cold or soft shutdown may do.
        if not stops:
            return None
        return Cause(CUT_OFF_BY_SHUTDOWN, f"it began in a {stops[0].what} shutdown")
    if run.is_over and run.outcome in BY_DESIGN and run.ended <= at + GRACE:
        return BY_DESIGN[run.outcome]
    kill = history.killed(run.pid, run.start, at)
    if kill and kill.at < run.ended + GRACE:
        return POOL_PROCESS_KILLED
    if stops and _may_not_know_end(run, stops[0].at, history):
        return Cause(CUT_OFF_BY_SHUTDOWN, f"it ran in a {stops[0].what} shutdown")
    # A task that ends while it is being cancelled counts as cancelled.
    if history.info.cancels and history.lost_connection(run.start, min(at, run.ended)):
        return Cause(DISCONNECTED, "it was cancelled when the connection was lost, as configured")
    return None


def was_stopped(delivery: Delivery, run: Run, history: WorkerHistory) -> bool:
    """Return whether a run may have been stopped because its lease was lost.

    The task may have ended before: a stopped worker learns how its task ended only when it
    continues.

    Args:
        delivery: The receive that the run was started for.
    """
    return history.info.terminates and delivery.visible_at <= after(run.ended, history.still)


def _may_not_know_end(run: Run, at: float, history: WorkerHistory) -> bool:
    """Return whether a worker may not yet have known at that time that a task had ended."""
    return run.ended > at or free(run.ended, at, history.still) < GRACE


def _why_released_before_its_start(
    delivery: Delivery, history: WorkerHistory, at: float
) -> Cause | None:
    if stops := history.stops(at):
        return Cause(WAITED_IN_SHUTDOWN, f"it waited in a {stops[-1].what} shutdown")
    received = delivery.receive.started
    # Its keeper polls until the worker has closed its consumer.
    before = since_when(received, HASTE, history.still)
    if history.lost_connection(before, at):
        return Cause(DISCONNECTED, "it was waiting when its worker lost the connection")
    if delivery.has_arrived and history.did(["pool-kill"], received - LOST_SECONDS, at):
        return Cause(POOL_KILLED, "it was assigned to a pool process that was killed")
    for broken in history.did(["broken"], at, math.inf):
        if free(at, broken.at, history.still) < BROKEN_SECONDS:
            return Cause(BROKEN, "it waited in a worker whose pool was broken")
    return _why_its_batch_was_refused(delivery, history, at)


def _why_its_batch_was_refused(
    delivery: Delivery, history: WorkerHistory, at: float
) -> Cause | None:
    """Return whether its batch had a message that was lost before the batch started.

    Batches wait only in some pools.
    """
    waits = delivery.has_arrived and history.info.pool in ("threads", "gevent")
    if delivery.task != "together" or not waits:
        return None
    return next(
        (
            lost.why
            for message_id, lost in history.lost_of_batches
            if message_id != delivery.message_id
            and lost.end <= at
            and _came_together(delivery.receive.done, lost.start, history)
        ),
        None,
    )


def _came_together(one: float, other: float, history: WorkerHistory) -> bool:
    """Return whether messages that were received at these times may be in one batch."""
    return free(min(one, other), max(one, other), history.still) < WAIT + GRACE
