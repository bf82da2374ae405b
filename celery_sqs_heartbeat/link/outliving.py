"""Releases the messages of a worker that has died."""

from __future__ import annotations

import logging
import time

from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import WORKER_DIED
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.link.liveness import TICK_SECONDS
from celery_sqs_heartbeat.link.numbered_leases import NumberedLeases
from celery_sqs_heartbeat.link.polls import ReportedPolls
from celery_sqs_heartbeat.link.processes import WorkerProcesses

logger = logging.getLogger(__name__)


def release_all_held(
    keeper: ThreadKeeper,
    leases: NumberedLeases,
    *,
    processes: WorkerProcesses,
    polls: ReportedPolls,
) -> None:
    """Release the messages the worker held, each as soon as no process can still run its task.

    If the worker had a long poll open on the queue, the release is delayed until that poll ends.
    Otherwise SQS would deliver the message to the poll, whose answer no one reads.
    """
    held = held_by(keeper)
    logger.warning(
        "sqs-heartbeat: the worker is gone: releasing %s that it held",
        counted(len(held), "message"),
    )
    processes.kill_pool()
    while held:
        for lease in held:
            number = leases.number(lease.receipt_handle) or 0
            if not processes.may_run(leases.pids.get(number)):
                keeper.release(lease.receipt_handle, polls.left(lease.queue_url), WORKER_DIED)
        held = held_by(keeper)
        if held:
            time.sleep(TICK_SECONDS)


def held_by(keeper: ThreadKeeper) -> list[Lease]:
    """Return the leases on messages that the worker has neither acked nor released."""
    return [lease for lease in keeper.leases() if lease.goal is Goal.HOLD]
