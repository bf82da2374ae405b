"""A worker's shutdown: what it releases, what it still starts, and how signals interrupt it.

A shutdown first closes every step and then stops them. When it closes our step, the event loop has
ended, so the pool receives no more tasks. But the consumer still has its waiting messages, and the
pool does not wait yet for the running tasks. So the messages of tasks that will never start are
released at this point, not after the longest running task.

When a message is released that was received for the last time (`maxReceiveCount`), SQS moves it to
the dead-letter queue, although its task has never run. So a warm shutdown has the pool start such
tasks first. This must happen before Celery stops its steps: a pool that was stopped takes no more
tasks.

Celery's cold and soft shutdown run in signal handlers. They release messages, which changes the
worker's records and writes to its keeper. So a signal handler must not interrupt work that must not
be seen half done.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import celery
from celery.bootsteps import TERMINATE
from celery.platforms import EX_FAILURE
from celery.worker import state

from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.requests import LeasedRequest

logger = logging.getLogger(__name__)

#: The signals on which Celery shuts down (celery/apps/worker.py).
SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)
#: Whether a threads pool that stops cancels the tasks that it has not started (since 5.7).
_CANCELS_WAITING = celery.VERSION >= (5, 7)
#: How long a message of a standard queue on its last receive waits for the pool, in seconds: a
#: third of Kubernetes' grace period of 30. After that it is sent again (`MessageSender`).
_START_SECONDS = 10.0
#: The pause between two checks of a worker without an event loop, in seconds.
_LOOK_SECONDS = 0.02


def end_polls(heartbeat: Heartbeat) -> None:
    """Stop receiving, and release what has not reached its consumer."""
    if not heartbeat.is_ending:
        logger.info(
            "sqs-heartbeat: receiving ends; messages that open long polls still return are released"
        )
    heartbeat.is_ending = True
    heartbeat.keeper.end_receiving()
    for feed in tuple(heartbeat.feeds.values()):
        feed.stop()


def release_unstarted(heartbeat: Heartbeat, pool: Any) -> None:
    """Release every message whose task the pool has not started and will not start."""
    _release_arriving(heartbeat)
    # Referenced until they are released: nothing else may refer to requests of a cancelled batch.
    requests = list(heartbeat.requests.values())
    if _cancels_waiting(pool):
        # Done first, so that cancelled tasks can no longer start. Celery does it again later.
        pool.executor.shutdown(wait=False, cancel_futures=True)
    waiting = [each for each in requests if waits_for_pool(each, pool) and each.withdraw()]
    release(waiting, "not started")


def waits_for_pool(request: LeasedRequest, pool: Any) -> bool:
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
    release(list(heartbeat.requests.values()), "not finished")


def release(requests: list[LeasedRequest], why: str) -> None:
    """Release the messages of these requests that are still held. `why` is for the log."""
    held = [request for request in requests if request.is_held()]
    if held:
        logger.info("sqs-heartbeat: releasing %s: %s", counted(len(held), "message"), why)
    for request in held:
        request.release("shutdown")


def stop_after_last_receives(heartbeat: Heartbeat, parent: Any) -> None:
    """Have a warm shutdown begin by starting the tasks of messages on their last receive."""
    stop = parent.stop

    def start_and_stop(in_sighandler: bool = False, **kwargs: Any) -> None:
        is_warm = state.should_stop is not None and state.should_stop is not False
        # It ends already if its pool takes no tasks.
        if is_warm and not in_sighandler and not heartbeat.is_ending:
            end_polls(heartbeat)
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


def put_off_signals(keeper: LinkedKeeper) -> None:
    """If a signal arrives while the keeper's record changes, handle it right after that.

    Call this again whenever Celery may have replaced the handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        # Signals are handled on the main thread only.
        return
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, _Outside):
            signal.signal(number, _Outside(keeper, handler))


class _Outside:
    """Handles a signal while no change of the record is under way."""

    def __init__(self, keeper: LinkedKeeper, handler: Callable[..., Any]) -> None:
        self._keeper = keeper
        self._handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        if self._keeper.defer(lambda: signal.raise_signal(number)):
            return
        try:
            self._handler(number, frame)
        finally:
            # Celery's handlers replace each other: at Ctrl+C, and as a shutdown continues.
            put_off_signals(self._keeper)


def release_before_soft_shutdown(
    parent: Any, keeper: LinkedKeeper, release_waiting: Callable[[], None]
) -> None:
    """Release waiting messages before a soft shutdown waits for the running tasks.

    Celery waits in the signal handler, and the event loop stalls meanwhile.
    """
    wait = parent.wait_for_soft_shutdown

    def release_and_wait() -> None:
        # Celery has just installed other handlers for the time of its wait.
        put_off_signals(keeper)
        release_waiting()
        wait()

    parent.wait_for_soft_shutdown = release_and_wait


def end_after_cold_shutdown(parent: Any, end: Callable[[], object]) -> None:
    """Call `end` after a cold shutdown, for which Celery sends no signal.

    The process of an embedded worker lives on. The threads of a pool do, too, until their tasks
    have ended, so this waits for them as Python does at the end of a process.
    """
    terminate = parent.terminate

    def terminate_and_end(*args: Any, **kwargs: Any) -> None:
        terminate(*args, **kwargs)
        # A signal may have interrupted a shutdown, which continues.
        if parent.blueprint.state == TERMINATE:
            executor = getattr(parent.pool, "executor", None)
            if executor is not None:
                executor.shutdown()
            end()

    parent.terminate = terminate_and_end


def let_handlers_call_soon(hub: Any) -> None:
    """Let a signal handler schedule calls on the event loop, whatever the signal interrupted.

    Since kombu 5.7, `call_soon` acquires a lock. If the signal interrupted a frame that holds the
    lock, Celery would wait indefinitely for the ack of a task that ends during the shutdown.
    """
    if hasattr(hub, "_ready_lock"):
        hub._ready_lock = threading.RLock()


def end_worker(hub: Any, error: Exception) -> None:
    """End a broken worker in the way the error would end a stock worker, with its exit code.

    Args:
        hub: Its event loop, or None.
    """
    if hub is not None:
        # Raised here, the error might end only a timer.
        hub.call_soon(_end, error)
    else:
        state.should_stop = EX_FAILURE


def _end(error: Exception) -> None:
    # After a connection error, Celery would otherwise reconnect, although the worker no longer
    # receives messages.
    state.should_stop = EX_FAILURE
    raise error
