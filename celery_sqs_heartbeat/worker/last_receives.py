"""Starts tasks before a warm shutdown whose messages would otherwise become dead letters.

When a message is released that was received for the last time (`maxReceiveCount`), SQS moves it to
the dead-letter queue, although its task has never run. So the pool still starts such tasks. This
must happen before Celery stops its steps: a pool that was stopped takes no more tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from celery.worker import state

from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.ending import release, waits_for_pool

logger = logging.getLogger(__name__)

#: How long such a message of a standard queue waits for the pool, in seconds: a third of
#: Kubernetes' grace period of 30. After that it is sent again (`MessageSender`).
_START_SECONDS = 10.0
#: The pause between two checks of a worker without an event loop, in seconds.
_LOOK_SECONDS = 0.02


def stop_after_last_receives(
    heartbeat: Heartbeat, parent: Any, end_polls: Callable[[], object]
) -> None:
    """Have a warm shutdown of a worker begin by starting these tasks."""
    stop = parent.stop

    def start_and_stop(in_sighandler: bool = False, **kwargs: Any) -> None:
        is_warm = state.should_stop is not None and state.should_stop is not False
        # It ends already if its pool takes no tasks.
        if is_warm and not in_sighandler and not heartbeat.is_ending:
            end_polls()
            _start_last_receives(heartbeat, parent)
        stop(in_sighandler, **kwargs)

    parent.stop = start_and_stop


def _start_last_receives(heartbeat: Heartbeat, parent: Any) -> None:
    """Have the pool start the tasks of such messages, and release all others that wait."""
    pool = parent.pool
    waiting = [each for each in list(heartbeat.requests.values()) if waits_for_pool(each, pool)]
    last = [each for each in waiting if each.is_due_for_the_last_time()]
    if not last:
        return
    # Jobs of a pool with processes can't be withdrawn: they are written as soon as the loop turns.
    others = [each for each in waiting if not (pool.uses_semaphore and each.has_job())]
    release([each for each in others if each not in last and each.withdraw()], "not started")
    logger.info(
        "sqs-heartbeat: %s received for the last time (maxReceiveCount): the pool starts them "
        "before the worker stops",
        counted(len(last), "message"),
    )
    turn = _turning(parent) if parent.hub is not None else lambda: time.sleep(_LOOK_SECONDS)
    gives_up_at = time.monotonic() + _START_SECONDS
    while any(
        waits_for_pool(each, pool)
        and each.is_held()
        # A message of a FIFO queue can't be sent again without losing its place.
        and (each.is_fifo() or time.monotonic() < gives_up_at)
        for each in last
    ):
        try:
            turn()
        except Exception:
            # A lost connection, or an error that would end the worker, which it does already.
            logger.exception("sqs-heartbeat: the event loop failed during the shutdown")
            return


def _turning(parent: Any) -> Callable[[], object]:
    """Return a function that lets the event loop turn once.

    It passes tasks to processes, and has the timers of rate limits.
    """
    hub = parent.hub
    if not hub.readers:
        # Before 5.7, Celery resets it at each end of the consumer.
        parent.register_with_event_loop(hub)
    loop = hub.create_loop()

    def turn() -> None:
        nonlocal loop
        try:
            next(loop)
        except StopIteration:
            loop = hub.create_loop()

    return turn
