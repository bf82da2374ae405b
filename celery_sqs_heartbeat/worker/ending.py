"""Releases messages when the worker shuts down.

A shutdown first closes every step and then stops them. When it closes our step, the event loop has
ended, so the pool receives no more tasks. But the consumer still has its waiting messages, and the
pool does not wait yet for the running tasks. So the messages of tasks that will never start are
released at this point, not after the longest running task.
"""

from __future__ import annotations

import logging
from typing import Any

import celery

from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.last_polls import LastPolls
from celery_sqs_heartbeat.transport.request import LeasedRequestProtocol

logger = logging.getLogger(__name__)

#: Whether a threads pool that stops cancels the tasks that it has not started (since 5.7).
_CANCELS_WAITING = celery.VERSION >= (5, 7)


#: How long an exiting worker may read its last polls before that time is subtracted from its flush,
#: in seconds: kombu's default wait. With the flush of 15 s, both take 25 s of Kubernetes' 30.
_FREE_WAIT_SECONDS = 10.0
#: The least time for the flush, in seconds, unless the setting is lower: a few tries of a delete.
_LEAST_FLUSH_SECONDS = 5.0


def flush_time_left(flush_timeout: float, waited: float) -> float:
    """Return how long the final flush may take, in seconds.

    Args:
        flush_timeout: The setting, in seconds.
        waited: How long the last polls were read, in seconds. Meanwhile, the keeper already
            deletes and releases messages.
    """
    left = flush_timeout - max(0.0, waited - _FREE_WAIT_SECONDS)
    return max(left, min(flush_timeout, _LEAST_FLUSH_SECONDS))


def end_polls(heartbeat: Heartbeat) -> LastPolls:
    """Stop receiving, and release the messages that open polls still return."""
    heartbeat.is_ending = True
    heartbeat.polled.rest_all()
    return LastPolls(heartbeat.http_client, list(heartbeat.open_polls))


def release_unstarted(heartbeat: Heartbeat, pool: Any) -> None:
    """Release every message whose task the pool has not started and will not start."""
    heartbeat.groups.leave("shutdown")
    _release_arriving(heartbeat)
    # Referenced until they are released: nothing else may refer to requests of a cancelled batch.
    requests = list(heartbeat.requests.values())
    if _cancels_waiting(pool):
        # Done first, so that cancelled tasks can no longer start. Celery does it again later.
        pool.executor.shutdown(wait=False, cancel_futures=True)
    waiting = [each for each in requests if waits_for_pool(each, pool) and each.withdraw()]
    release(waiting, "not started")


def waits_for_pool(request: LeasedRequestProtocol, pool: Any) -> bool:
    """Return whether a pool that is stopped now would not run the request's task."""
    if _cancels_waiting(pool):
        return not request.has_started()
    return not request.outlives_consumer()


def _cancels_waiting(pool: Any) -> bool:
    return _CANCELS_WAITING and getattr(pool, "executor", None) is not None


def _release_arriving(heartbeat: Heartbeat) -> None:
    """Release the messages whose delivery was interrupted by this signal handler.

    Of the messages received together, those already delivered have a request. A release does
    nothing to settled messages.
    """
    for tag in tuple(heartbeat.arriving):
        lease = heartbeat.keeper.find(tag)
        if lease is not None and lease.key not in heartbeat.requests:
            heartbeat.keeper.release(tag, cause="not delivered")


def release_all(heartbeat: Heartbeat) -> None:
    """Release every message that is still held: its task was stopped with the pool."""
    heartbeat.groups.leave("shutdown")
    release(list(heartbeat.requests.values()), "not finished")


def release(requests: list[LeasedRequestProtocol], why: str) -> None:
    """Release the messages of these requests that are still held. `why` is for the log."""
    held = [request for request in requests if request.is_held()]
    if held:
        logger.info("sqs-heartbeat: releasing %s: %s", counted(len(held), "message"), why)
    for request in held:
        request.release("shutdown")
