"""Why a worker released a message, where it had a reason to."""

from __future__ import annotations

import math

from tests.soak.blocks import after, free
from tests.soak.delivery import HASTE, Delivery, Run
from tests.soak.gathering import WAIT
from tests.soak.table import (
    BROKEN,
    CUT_OFF_BY_SHUTDOWN,
    DISCONNECTED,
    GIVEN_BACK,
    GROUP_STOPPED,
    POOL_KILLED,
    WAITED_IN_SHUTDOWN,
    Cause,
)
from tests.soak.worker_history import WorkerHistory

#: What must happen soon on a free worker may take so long on a busy machine, in seconds.
GRACE = 1.0
#: How long Celery may take to notice that a process of its pool is gone: it looks every 5 s
#: and waits 10 s for its last words (celery/concurrency/asynpool.py, billiard's
#: LOST_WORKER_TIMEOUT).
LOST_SECONDS = 20.0
#: How long a worker whose pool is broken may take to end, in seconds, beside the times it stood
#: still: it waits for its tasks.
BROKEN_SECONDS = 20.0
#: Tasks end with these when they leave their message in the queue by design.
BY_DESIGN = {
    "fail": Cause(GIVEN_BACK, "it failed by design"),
    "reject": Cause(GIVEN_BACK, "it was rejected by design"),
}
POOL_PROCESS_KILLED = Cause(POOL_KILLED, "its pool process was killed")


def why_released(tenure: Delivery, life: WorkerHistory, at: float) -> Cause | None:
    """Return why its own worker, or its keeper, released it at that time, or None for no reason."""
    return (
        _why_its_worker_did(tenure, life, at)
        or _why_its_keeper_did(tenure, life, at)
        or _why_its_group_was_stopped(tenure, at)
    )


def _why_its_group_was_stopped(tenure: Delivery, at: float) -> Cause | None:
    """Return whether a message ahead of it, which had not begun, came back from this worker.

    Why that one did is judged with it. It is released after this one.
    """
    run = tenure.run
    if run is not None and run.count == tenure.count:
        return None
    for each in tenure.ahead:
        if each.next is not None and each.receive.done <= at <= each.next.receive.done:
            return Cause(GROUP_STOPPED, f"{each.message_id[:8]} of its group went back")
    return None


def _why_its_keeper_did(tenure: Delivery, life: WorkerHistory, at: float) -> Cause | None:
    """Return whether its worker was gone, and no process of it ran the task any more.

    What the worker had begun to delete, its keeper goes on to delete.
    """
    run = tenure.run
    if not life.was_killed or at < life.info.ended - HASTE:
        return None
    if any(call.worker == tenure.worker for call, _ in tenure.deletes):
        return None
    if run is not None and (run.start > at or at < run.ended < math.inf):
        return None
    if run is not None and run.outcome and not _was_unsettled(run, life.info.ended, life):
        return None
    return life.gone.why


def _why_its_worker_did(tenure: Delivery, life: WorkerHistory, at: float) -> Cause | None:
    run = tenure.run
    if run is None:
        return _why_released_before_its_start(tenure, life, at)
    earlier = next((each for each in tenure.before() if each.count == run.count), None)
    # One that began after this receive goes on with its lease.
    if earlier and run.start < tenure.receive.done and was_stopped(earlier, run, life):
        why = _why_released_before_its_start(tenure, life, at)
        # One that began when its lease was over may have missed the order to stop.
        if why or run.start < earlier.visible_at:
            return why
    stops = life.stops(at, ["cold", "soft"])
    if run.start > at:
        # It was started all the same, which only a process that is being ended may do.
        if not stops:
            return None
        return Cause(CUT_OFF_BY_SHUTDOWN, f"it began in a {stops[0].what} shutdown")
    if run.is_over and run.outcome in BY_DESIGN and run.ended <= at + GRACE:
        return BY_DESIGN[run.outcome]
    kill = life.killed(run.pid, run.start, at)
    if kill and kill.at < run.ended + GRACE:
        return POOL_PROCESS_KILLED
    if stops and _was_unsettled(run, stops[0].at, life):
        return Cause(CUT_OFF_BY_SHUTDOWN, f"it ran in a {stops[0].what} shutdown")
    # One that ends while it is cancelled is cancelled all the same.
    if life.info.cancels and life.lost_connection(run.start, min(at, run.ended)):
        return Cause(DISCONNECTED, "it was cancelled with its lost connection, as was set")
    return None


def was_stopped(tenure: Delivery, run: Run, life: WorkerHistory) -> bool:
    """Return whether a run was stopped for its lost lease, though it may have been through by then.

    A worker that stands still does not know how its task ended until it goes on.

    Args:
        tenure: The receive that it was begun for.
    """
    return life.info.terminates and tenure.visible_at <= after(run.ended, life.still)


def _was_unsettled(run: Run, at: float, life: WorkerHistory) -> bool:
    """Return whether a worker may not have known at that time that a task had ended."""
    return run.ended > at or free(run.ended, at, life.still) < GRACE


def _why_released_before_its_start(
    tenure: Delivery, life: WorkerHistory, at: float
) -> Cause | None:
    if stops := life.stops(at):
        return Cause(WAITED_IN_SHUTDOWN, f"it waited in a {stops[-1].what} shutdown")
    received = tenure.receive.started
    if life.lost_connection(received, at):
        return Cause(DISCONNECTED, "it waited when its worker lost the connection")
    if life.did(["pool-kill"], received - LOST_SECONDS, at):
        return Cause(POOL_KILLED, "it was given to a pool process that was killed")
    for broken in life.did(["broken"], at, math.inf):
        if free(at, broken.at, life.still) < BROKEN_SECONDS:
            return Cause(BROKEN, "it waited in a worker whose pool was broken")
    return _why_its_batch_was_refused(tenure, life, at)


def _why_its_batch_was_refused(tenure: Delivery, life: WorkerHistory, at: float) -> Cause | None:
    """Return whether it came in a batch with a message that was lost before that began.

    Only some pools let a batch wait.
    """
    if tenure.task != "together" or life.info.pool not in ("threads", "gevent"):
        return None
    return next(
        (
            lost.why
            for message_id, lost in life.lost_of_batches
            if message_id != tenure.message_id
            and lost.end <= at
            and _came_together(tenure.receive.done, lost.start, life)
        ),
        None,
    )


def _came_together(one: float, other: float, life: WorkerHistory) -> bool:
    """Return whether messages that came at these times may be of one batch."""
    return free(min(one, other), max(one, other), life.still) < WAIT + GRACE
