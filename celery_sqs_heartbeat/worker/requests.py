"""Requests that know their message's lease.

Celery's request sees each step of a task: that the pool has it, that its message is acked, that
it failed or was cancelled. The channel sees less. It gets `reject(requeue=False)` both for a
failed task and for a message that was rejected on purpose.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery import Celery
from celery.exceptions import Reject, TimeLimitExceeded
from kombu.utils.encoding import safe_repr, safe_str
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.current.current_message import ReleaseMessage, asked_retry
from celery_sqs_heartbeat.link.watching import WatchedProcess
from celery_sqs_heartbeat.transport.settling import UNKNOWN, TaskFailure
from celery_sqs_heartbeat.worker.retrying import ReleasedRetry
from celery_sqs_heartbeat.worker.starts import StartingRequest

logger = get_logger(__name__)


def use_leased_requests(app: Celery) -> None:
    """Make every task of the app, also if added later, use requests that know their lease."""
    leased: dict[type, type] = {}
    for task in (app.Task, *app.tasks.values()):
        request = symbol_by_name(task.Request)
        if not issubclass(request, LeasedRequest):
            task.Request = leased.setdefault(
                request, type(request.__name__, (LeasedRequest, request), {})
            )


class LeasedRequest(StartingRequest):
    """Mixin for a Celery request: reports to the keeper what happens to its task."""

    _is_killed = False
    #: Celery itself has stopped the task, or is about to.
    is_stopped = False
    _has_failed = False
    _failure = UNKNOWN
    _is_cancelled = False
    #: The process that the pool kills because the task has exceeded its time limit.
    _dying: WatchedProcess | None = None
    _awaits_death = False

    def stop_lost_task(self, pool: Any) -> None:
        """Stop its task, if it runs and the message is still not ours.

        This gives up the message first. Otherwise the ack of the stopped task would delete a
        message that another worker has.
        """
        if self._heartbeat is None or not self.is_held():
            return
        keeper = self._heartbeat.keeper
        # Celery knows no process of a batch. Stopping it would also stop other messages' tasks.
        is_own = self.time_start is not None
        if not is_own or keeper.owns(self._tag):
            return
        logger.warning("sqs-heartbeat: stopping task %s[%s]: its lease is gone", self.name, self.id)
        keeper.disown(self._tag)
        self.terminate(pool)

    def acknowledge(self) -> None:
        """Have the message deleted at once, without waiting for the event loop.

        The loop may be late (before kombu 5.7, another thread does not wake it). It may have ended
        (a shutdown), or been replaced along with the channel (a reconnect).
        """
        if self._is_killed:
            # Celery treats a killed greenlet as a task that succeeded.
            self.release("cancelled")
            return
        if self.acknowledged:
            return
        if (wait := self._asked_retry()) is not None:
            # The task continued after `retry`, and the retry was promised to it.
            self._release_for_retry(wait)
            return
        if self._heartbeat is not None and self._lease is not None:
            self._heartbeat.keeper.done(self._tag)
            self._heartbeat.settled.add(self._tag)
        if self._watch is not None:
            self._watch.is_settling = True
        super().acknowledge()

    def reject(self, requeue: bool = False) -> None:
        """Have the message released, or settled as kombu does: at once, like an ack.

        The message of a failed task is released. The channel can't tell it from a message that
        was rejected on purpose.

        The message of a task that has exceeded its time limit is rejected when its process is dead.
        """
        if self._dying is not None and not self._dying.has_ended and not self.acknowledged:
            if not self._awaits_death:
                self._awaits_death = True
                reject = partial(self._reject_at_death, self._dying, requeue)
                threading.Thread(target=reject, name="sqs-heartbeat-death", daemon=True).start()
            return
        if self._heartbeat is not None and self._lease is not None and not self.acknowledged:
            requeued = requeue or self._has_failed
            self.message.channel.reject(self._tag, requeue=requeued, failure=self._failure)
            # Even without a lease: kombu would delete a message that must become visible again.
            self._heartbeat.settled.add(self._tag)
        super().reject(requeue=requeue)

    def _reject_at_death(self, process: WatchedProcess, requeue: bool) -> None:
        if self._watch is not None:
            # The pool forgets the job long before that.
            self._watch.is_settling = True
        process.wait()
        process.close()
        self.reject(requeue=requeue)

    def _note_overdue(self) -> None:
        """Note that the pool is about to kill the process, which may ignore a first signal."""
        has_process = self._heartbeat is not None and self._heartbeat.has_processes
        if has_process and self._lease is not None and self._dying is None and self.worker_pid:
            self._dying = WatchedProcess(self.worker_pid)

    def cancel(self, pool: Any, *args: Any, **kwargs: Any) -> Any:
        """Cancel the task as Celery does. Its message is released when the task has ended."""
        self.is_stopped = True
        # Set before the call: with eventlet, the task ends before the call returns.
        self._is_killed = self._lease is not None and bool(getattr(pool, "is_green", False))
        # Celery announces nothing for a task that has not begun: it may still fail.
        is_announced = bool(self.time_start)
        try:
            cancelled = super().cancel(pool, *args, **kwargs)
        except NotImplementedError:
            # Neither a thread nor a task in a solo pool can be stopped. In a signal handler, this
            # error would end the worker at once. In a solo pool it would be raised in the task
            # itself, which would then have failed, and its message would be deleted.
            self.is_stopped = self._is_killed = False
            return None
        self._is_cancelled |= is_announced
        return cancelled

    def terminate(self, pool: Any, *args: Any, **kwargs: Any) -> Any:
        """Stop the task as Celery does."""
        self.is_stopped = True
        return super().terminate(pool, *args, **kwargs)

    def follow(self, job: object) -> None:
        """Note the pool's job. By the time the job is gone, the message must be settled."""
        if self._watch is not None:
            self._watch.follow(job)

    def end(self) -> None:
        """Note that the task has ended. Its message must be settled by now."""
        if self._watch is not None:
            self._watch.end()
        self.leave_pool()

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Handle a time limit as Celery does."""
        if not soft:
            self._failure = TaskFailure(exception=TimeLimitExceeded)
            self._note_overdue()
        try:
            super().on_timeout(soft, timeout)
        except Exception:
            if not soft:
                self.reject_if_unsettled(requeue=True)
            raise

    def on_retry(self, exc_info: Any) -> Any:
        """Handle a retry as Celery does, or release the message for it."""
        error = error_of(exc_info)
        if not isinstance(error, ReleasedRetry):
            return super().on_retry(exc_info)
        self._release_for_retry(error.delay())
        self.send_event(
            "task-retried",
            exception=safe_repr(error.exc),
            traceback=safe_str(exc_info.traceback),
        )
        return None

    def _asked_retry(self) -> float | None:
        return asked_retry(self._tag) if self._retries_are_releases else None

    def _release_for_retry(self, wait: float) -> None:
        channel = self.message.channel
        failure = TaskFailure(is_retry=True, delay=wait)
        channel.reject(self._tag, requeue=True, failure=failure)
        channel.qos.ack(self._tag)
        self.acknowledged = True

    def reject_if_unsettled(self, *, requeue: bool) -> None:
        """Reject the message, unless Celery settled it before Celery itself raised an error.

        Such an error comes from a result backend that is down, for example. The task has ended, so
        nothing else would settle the message, and its lease would continue.
        """
        if self._lease is not None:
            self.reject(requeue=requeue)

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        """Handle the failure as Celery does, and remember it for when the message is released."""
        if self._lease is None:
            return super().on_failure(exc_info, *args, **kwargs)
        if self._is_cancelled:
            # If Celery cancelled the task itself, it leaves the message to the broker. With 5.5 and
            # billiard 4.3, it treats the task as failed and deletes the message.
            self.release("cancelled")
            return None
        error = error_of(exc_info)
        self._has_failed = not isinstance(error, Reject)
        self._failure = _failure_of(exc_info)
        if isinstance(error, TimeLimitExceeded) and not kwargs.get("return_ok"):
            # The pool's own error, not one that the task has raised.
            self._note_overdue()
        if (wait := self._asked_retry()) is not None:
            self._failure = replace(self._failure, delay=wait)
        try:
            return super().on_failure(exc_info, *args, **kwargs)
        except Exception:
            self.reject_if_unsettled(requeue=getattr(error, "requeue", True))
            if not isinstance(error, MemoryError):
                raise
            # The task ran out of memory, not this process. Raised here, the error would end the
            # worker if its pool has processes.
            logger.exception(
                "sqs-heartbeat: task %s[%s] ran out of memory: releasing its message",
                self.name,
                self.id,
            )
            return None


def error_of(exc_info: Any) -> Any:
    """Return the error that a pool reports."""
    error = exc_info.exception
    return error.exc if isinstance(error, ExceptionWithTraceback) else error


def _failure_of(exc_info: Any) -> TaskFailure:
    """Return the details of a failure that the message's release delay may depend on."""
    error = error_of(exc_info)
    # The error may be a stand-in for another one that could not be pickled.
    kind = getattr(exc_info, "type", None)
    exception = kind if isinstance(kind, type) else type(error)
    if not isinstance(error, ReleaseMessage):
        return TaskFailure(exception=exception)
    reason = safe_str(error.reason) if error.reason else ""
    return TaskFailure(exception=exception, is_wanted=True, delay=error.delay, reason=reason)
