"""Finds the reason why a worker released a message, if it had one."""

from __future__ import annotations

import math

from tests.soak import table
from tests.soak.knowledge import READING_SECONDS
from tests.soak.messages import Delivery, Run
from tests.soak.records import CHANGE, DELETE, Call, Records
from tests.soak.table import Cause
from tests.soak.workers import HASTE, Worker, after, free, since_when

#: How long an immediate step of an idle worker may take on a busy machine, in seconds.
GRACE = 1.0
#: How long Celery may take to notice that a process of its pool is gone, in seconds: it looks
#: every 5 s and then waits 10 s for the process's last results (celery/concurrency/asynpool.py,
#: billiard's LOST_WORKER_TIMEOUT).
LOST_SECONDS = 20.0
#: Outcomes with which a task leaves its message in the queue by design.
BY_DESIGN = {
    "fail": Cause(table.RELEASED_BY_TASK, "it failed by design"),
    "reject": Cause(table.RELEASED_BY_TASK, "it was rejected by design"),
}
POOL_PROCESS_KILLED = Cause(table.POOL_KILLED, "its pool process was killed")


def why_released(delivery: Delivery, at: float) -> Cause | None:
    """Return why its worker or keeper released it at that time, or None if there is no reason."""
    return _why_released_by_the_same_keeper(delivery, at) or _why_its_next_keeper_did(delivery, at)


def _why_released_by_the_same_keeper(delivery: Delivery, at: float) -> Cause | None:
    """Return the same, unless the only reason is that the keeper before had died."""
    return (
        _why_its_keeper_did(delivery, at)
        or _why_its_worker_did(delivery, at)
        or _why_its_group_was_stopped(delivery, at)
    )


def _why_its_group_was_stopped(delivery: Delivery, at: float) -> Cause | None:
    """Return whether its worker released or lost a message ahead of it, and it had not started.

    A message ahead that is released is released after this one, and judged on its own. If SQS
    refuses its delete, it has become another worker's.
    """
    if delivery.is_run:
        return None
    for each in delivery.ahead:
        if each.next is not None and each.receive.done <= at <= each.next.receive.done:
            name = each.message.message_id[:8]
            return Cause(table.GROUP_STOPPED, f"{name} of its group was released")
    for call in delivery.refused_ahead:
        if call.ended <= at and free(call.ended, at, delivery.worker.blocks) < GRACE + HASTE:
            return Cause(table.GROUP_STOPPED, "the delete of a message of its group was refused")
    return None


def _why_its_keeper_did(delivery: Delivery, at: float) -> Cause | None:
    """Return whether its worker was gone and none of its processes ran the task any more.

    If the worker had begun to delete the message, its keeper continues to delete it.
    """
    run, worker = delivery.run, delivery.worker
    ended = worker.info.ended
    if not worker.was_killed or at < ended - HASTE or delivery.own_deletes:
        return None
    if run is not None and (run.start > at or at < run.ended < math.inf):
        return None
    if run is not None and run.outcome and not _may_not_know_end(run, ended, worker):
        return None
    if delivery.receive.done > ended:
        return Cause(table.KILLED, "it arrived after its worker was killed")
    return worker.gone.why


def _why_its_next_keeper_did(delivery: Delivery, at: float) -> Cause | None:
    """Return whether its keeper died before it had handed the message over.

    Its body died with that keeper. The next one releases it as soon as it has started.
    """
    if delivery.run is not None or delivery.has_arrived:
        return None
    for down in delivery.worker.downs:
        tries = [call.started for call, _ in delivery.releases if call.started > down.died_at]
        was_held = delivery.receive.ended <= down.at and down.died_at < at
        if was_held and free(down.died_at, min([at, *tries]), delivery.worker.blocks) < GRACE:
            return Cause(table.NOT_HANDED_OVER, "its keeper died before it was handed over")
    return None


def _why_its_worker_did(delivery: Delivery, at: float) -> Cause | None:
    run, worker = delivery.run, delivery.worker
    if run is None:
        return _why_released_before_its_start(delivery, at)
    earlier = next((each for each in delivery.before() if each.count == run.count), None)
    # A run that began after this receive continues with its lease.
    if earlier and run.start < delivery.receive.done and was_stopped(earlier, run):
        why = _why_released_before_its_start(delivery, at)
        # A run that began after the lease had expired may have missed the order to stop. One that
        # failed before its worker could stop it has its message released by its present handle.
        failed_first = run.is_over and free(earlier.visible_at, run.ended, worker.still) < HASTE
        if why or (run.start < earlier.visible_at and not failed_first):
            return why
    stops = worker.stops(at, ["cold", "soft"])
    if run.start > at:
        # It was started after its release, which only a pool in a cold or soft shutdown may do.
        if not stops:
            return None
        return Cause(table.CUT_OFF_BY_SHUTDOWN, f"it began in a {stops[0].what} shutdown")
    if run.is_over and run.outcome in BY_DESIGN and run.ended <= at + GRACE:
        return BY_DESIGN[run.outcome]
    kill = worker.killed(run.pid, run.start, at)
    if kill and kill.at < run.ended + GRACE:
        return POOL_PROCESS_KILLED
    if stops and _may_not_know_end(run, stops[0].at, worker):
        return Cause(table.CUT_OFF_BY_SHUTDOWN, f"it ran in a {stops[0].what} shutdown")
    # A task that ends while it is being cancelled counts as cancelled.
    if worker.info.cancels and worker.lost_connection(run.start, min(at, run.ended)):
        return Cause(
            table.DISCONNECTED, "it was cancelled when the connection was lost, as configured"
        )
    return None


def was_stopped(delivery: Delivery, run: Run) -> bool:
    """Return whether a run may have been stopped because its lease was lost.

    The task may have ended before: a stopped worker learns how its task ended only when it
    continues.

    Args:
        delivery: The receive that the run was started for.
    """
    is_configured = delivery.worker.info.on_lost == "terminate"
    return is_configured and delivery.visible_at <= after(run.ended, delivery.worker.still)


def _may_not_know_end(run: Run, at: float, worker: Worker) -> bool:
    """Return whether a worker may not yet have known at that time that a task had ended."""
    return run.ended > at or free(run.ended, at, worker.still) < GRACE


def _why_released_before_its_start(delivery: Delivery, at: float) -> Cause | None:
    worker, received = delivery.worker, delivery.receive.started
    if stops := worker.stops(at):
        return Cause(table.WAITED_IN_SHUTDOWN, f"it waited in a {stops[-1].what} shutdown")
    # Its keeper polls until the worker has closed its consumer.
    if worker.lost_connection(since_when(received, HASTE, worker.still), at):
        return Cause(table.DISCONNECTED, "it was waiting when its worker lost the connection")
    if delivery.has_arrived and worker.did(["pool-kill"], received - LOST_SECONDS, at):
        return Cause(table.POOL_KILLED, "it was assigned to a pool process that was killed")
    return None


# -- Releases that were under way when their keeper died. The next keeper does not repeat them. ----


def note_unread_answers(records: Records) -> None:
    """Note which answers no keeper read, because it had died or was stopped until its death."""
    deaths = [
        harm
        for harm in records.harms
        if harm.what == "keeper-kill" or (harm.what == "keeper-pause" and harm.died)
    ]
    for call in records.calls:
        if call.operation in (CHANGE, DELETE) and any(
            harm.worker == call.worker and _was_under_way(call, harm.at) for harm in deaths
        ):
            call.fault = call.fault or "its keeper died"
            for entry in call.entries:
                entry.told = False


def why_cut(delivery: Delivery) -> Cause | None:
    """Return whether a release of it may have been under way when its keeper died.

    The worker's log must report the release.
    """
    says_so = delivery.message.message_id in delivery.worker.unrepeated
    if says_so and any(
        down.dies and down.at < delivery.visible_at and _was_cut(delivery, down.at)
        for down in delivery.worker.downs
    ):
        return Cause(table.RELEASE_CUT, "its keeper died as it released it")
    return None


def _was_cut(delivery: Delivery, at: float) -> bool:
    releases = [call for call, _ in delivery.releases if call.started <= at]
    if releases:
        return _was_under_way(releases[-1], at)
    # It may have been planned but not sent: a keeper acts at once on a reason for a release. Times
    # without a keeper do not count.
    fresh_since = since_when(at, GRACE + HASTE, delivery.worker.blocks)
    is_due = _why_released_by_the_same_keeper(delivery, at + HASTE) is not None
    return is_due and _why_released_by_the_same_keeper(delivery, fresh_since) is None


def _was_under_way(call: Call, at: float) -> bool:
    return call.started <= at <= call.ended + READING_SECONDS
