"""Gives messages back when the worker goes.

A shutdown first closes every step and then stops them. When ours is closed the event loop
is over, so nothing is given to the pool any more, but the consumer has not yet forgotten what
waits in it, and the pool does not wait yet for the tasks that run: what it will never
start is released then, not after the longest of them.
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

#: Whether a threads pool that is stopped cancels what it has not started (since 5.7).
_CANCELS_WAITING = celery.VERSION >= (5, 7)


#: How long a worker that ends may read its last polls before that is taken off the time of its
#: flush, in seconds: kombu's default wait. With the flush of 15 s both take 25 s of Kubernetes' 30.
_FREE_WAIT_SECONDS = 10.0
#: What the flush is left with at least, in seconds, unless less is set: some tries of a delete.
_LEAST_FLUSH_SECONDS = 5.0


def flush_time_left(flush_timeout: float, waited: float) -> float:
    """Return how long the final flush may take, in seconds.

    Args:
        flush_timeout: The setting, in seconds.
        waited: How long the last polls were read, in seconds. The keeper deletes and releases
            meanwhile, too.
    """
    left = flush_timeout - max(0.0, waited - _FREE_WAIT_SECONDS)
    return max(left, min(flush_timeout, _LEAST_FLUSH_SECONDS))


def end_polls(heartbeat: Heartbeat) -> LastPolls:
    """Receive no more, and have what the open polls still bring released."""
    heartbeat.is_ending = True
    heartbeat.polled.rest_all()
    return LastPolls(heartbeat.http_client, list(heartbeat.open_polls))


def release_unstarted(heartbeat: Heartbeat, pool: Any) -> None:
    """Release every message whose task the pool has not started and will not start."""
    heartbeat.groups.leave("shutdown")
    _release_arriving(heartbeat)
    # Kept until they are released: of a cancelled batch nothing else may refer to them.
    requests = list(heartbeat.requests.values())
    is_cancelled = False
    executor = getattr(pool, "executor", None)
    if executor is not None and _CANCELS_WAITING:
        # Done first, and by Celery again: what is cancelled can't start any more.
        executor.shutdown(wait=False, cancel_futures=True)
        is_cancelled = True
    waiting = [
        request
        for request in requests
        if not (request.has_started() if is_cancelled else request.outlives_consumer())
        and request.withdraw()
    ]
    _release(waiting, "not started")


def _release_arriving(heartbeat: Heartbeat) -> None:
    """Release what was to be delivered in the very frame that a signal's handler has interrupted.

    Of a batch, those have a request that were delivered; a release does nothing to those that are
    settled.
    """
    for tag in tuple(heartbeat.arriving):
        lease = heartbeat.keeper.find(tag)
        if lease is not None and lease.key not in heartbeat.requests:
            heartbeat.keeper.release(tag, cause="not delivered")


def release_all(heartbeat: Heartbeat) -> None:
    """Release every message that is held still: their tasks were stopped with the pool."""
    heartbeat.groups.leave("shutdown")
    _release(list(heartbeat.requests.values()), "not finished")


def _release(requests: list[LeasedRequestProtocol], why: str) -> None:
    held = [request for request in requests if request.is_held()]
    if held:
        logger.info("sqs-heartbeat: releasing %s: %s", counted(len(held), "message"), why)
    for request in held:
        request.release("shutdown")
