"""What a keeper does for a worker that has died."""

from __future__ import annotations

import logging
import time

from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
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
    """Release what the worker held, each message once no process may run it any more.

    After what is left of the long poll that the worker had open on its queue: SQS would give it to
    that poll, which no one reads.
    """
    held = _held_by(keeper)
    logger.warning(
        "sqs-heartbeat: the worker is gone: releasing %s that it held",
        counted(len(held), "message"),
    )
    processes.kill_pool()
    while held:
        for lease in held:
            number = leases.number(lease.receipt_handle) or 0
            if not processes.may_run(leases.pids.get(number)):
                keeper.release(lease.receipt_handle, polls.left(lease.queue_url), "worker died")
        held = _held_by(keeper)
        if held:
            time.sleep(TICK_SECONDS)


def _held_by(keeper: ThreadKeeper) -> list[Lease]:
    return [lease for lease in keeper.leases() if lease.goal is Goal.HOLD]
