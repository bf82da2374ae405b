"""Requests that know their message's lease.

Celery's request sees each step of a task: that the pool has it, that its message is acked, that
it failed or was cancelled. The channel sees less. It gets `reject(requeue=False)` both for a
failed task and for a message that was rejected on purpose.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from billiard.einfo import ExceptionWithTraceback
from celery import Celery
from celery.exceptions import InvalidTaskError, Reject, TimeLimitExceeded
from kombu.utils.encoding import safe_repr, safe_str
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.current.asked_delays import asked_retry
from celery_sqs_heartbeat.current.release_message import ReleaseMessage
from celery_sqs_heartbeat.leases.events import UNSETTLED
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.link.processes import WatchedProcess
from celery_sqs_heartbeat.transport.binding import Heartbeat, bound
from celery_sqs_heartbeat.transport.orphaned_messages import Watch
from celery_sqs_heartbeat.transport.task_failure import UNKNOWN, TaskFailure
from celery_sqs_heartbeat.worker.losses import report_unleased
from celery_sqs_heartbeat.worker.pools import will_run
from celery_sqs_heartbeat.worker.retrying import ReleasedRetry, mark_request
from celery_sqs_heartbeat.worker.starts import guarded
from celery_sqs_heartbeat.worker.strategies import gathers_requests, has_own_strategy

if TYPE_CHECKING:
    from celery.worker.request import Request
else:
    Request = object

logger = get_logger(__name__)


def error_of(exc_info: Any) -> Any:
    """Return the error that a pool reports."""
    error = exc_info.exception
    return error.exc if isinstance(error, ExceptionWithTraceback) else error


def task_failure_of(exc_info: Any) -> TaskFailure:
    """Return the details of a failure that the message's release delay may depend on."""
    error = error_of(exc_info)
    # The error may be a stand-in for another one that could not be pickled.
    kind = getattr(exc_info, "type", None)
    exception = kind if isinstance(kind, type) else type(error)
    if not isinstance(error, ReleaseMessage):
        return TaskFailure(exception=exception)
    reason = safe_str(error.reason) if error.reason else ""
    return TaskFailure(exception=exception, is_wanted=True, delay=error.delay, reason=reason)


def check_contents(time_limits: Any, kwargs: Any) -> None:
    """Check what a message says about its task, beyond what Celery checks itself.

    A pool of processes uses time limits when the task has begun, and an error would end the worker.
    Without keyword arguments that are any, Celery runs no task, and acks the message.

    Raises:
        InvalidTaskError: Something is wrong. Celery logs that and rejects the message.
    """
    try:
        _, _ = time_limits
        is_valid = all(
            limit is None or (isinstance(limit, int | float) and float(limit) >= 0)
            for limit in time_limits
        )
    except (TypeError, ValueError, OverflowError):
        is_valid = False
    if not is_valid:
        raise InvalidTaskError(f"invalid timelimit value {safe_repr(time_limits)}")
    if not isinstance(kwargs, Mapping):
        raise InvalidTaskError("Task keyword arguments must be a mapping")


#: How the names of Celery's own tasks begin.
_CELERYS_OWN = "celery."
#: What may happen to a request that waits for the pool.
_START, _WITHDRAWAL = "start", "withdrawal"


class LeasedRequest(Request):
    """Mixin for a Celery request: reports to the keeper what happens to its task."""

    _lease: Lease | None = None
    _heartbeat: Heartbeat | None = None
    _watch: Watch | None = None
    _is_killed = False
    #: Celery itself has stopped the task, or is about to.
    is_stopped = False
    _has_failed = False
    _failure = UNKNOWN
    _has_begun = False
    _is_cancelled = False
    #: A retry of the task releases its message.
    _retries_are_releases = False
    _job: ref[Any] | None = None
    #: The process that the pool kills because the task has exceeded its time limit.
    _dying: WatchedProcess | None = None
    _awaits_death = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Guard task starts in subclasses, too: Celery derives one for each task."""
        super().__init_subclass__(**kwargs)
        if execute := vars(cls).get("execute_using_pool"):
            cls.execute_using_pool = guarded(execute)  # type: ignore[method-assign]

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(message, *args, **kwargs)
        check_contents(self.time_limits, self.kwargs)
        self._heartbeat = bound()
        if self._heartbeat is not None:
            self._lease = self._heartbeat.keeper.find(message.delivery_tag)
        if self._heartbeat is not None and self._lease is not None:
            self._heartbeat.requests[self._lease.key] = self
            self._watch = self._heartbeat.orphaned.watch(self, self._lease, message)
            self._retries_are_releases = self._releases_retries(self._lease, self._heartbeat)
            if self._retries_are_releases:
                mark_request(self, self._lease)
        elif self._heartbeat is not None:
            report_unleased(self._heartbeat, message, self)

    def _releases_retries(self, lease: Lease, heartbeat: Heartbeat) -> bool:
        # With an early ack there is no message left to release. A task of Celery's own, such as
        # `celery.chord_unlock`, retries to wait for messages that were sent after its own.
        return (
            lease.is_in_order
            and bool(self.task.acks_late)
            and not (lease.task or "").startswith(_CELERYS_OWN)
            and heartbeat.rules.releases_retries(lease)
        )

    @guarded
    def execute_using_pool(self, pool: Any, **kwargs: Any) -> Any:
        """Give the task to the pool, as a task's own strategy may do, too; return the job."""
        return super().execute_using_pool(pool, **kwargs)

    @property
    def _tag(self) -> str:
        return str(self.message.delivery_tag)

    def revoked(self) -> bool:
        """Return whether the task must not start: it is revoked, or its message is not ours."""
        if self.is_not_ours():
            return True
        return bool(super().revoked())

    def is_not_ours(self) -> bool:
        """Return whether the task must not start because its message is no longer ours; log it."""
        if reason := self._why_not_ours():
            # A withdrawn task comes up in its turn while a shutdown waits for others to start.
            is_news = self.__dict__.get("_claimed") != _WITHDRAWAL
            logger.log(
                logging.WARNING if is_news else logging.INFO,
                "sqs-heartbeat: task %s[%s] is not started: %s",
                self.name,
                self.id,
                reason,
            )
        return bool(reason)

    def _why_not_ours(self) -> str:
        heartbeat, lease = self._heartbeat, self._lease
        if heartbeat is None or lease is None:
            return ""
        if not self.is_held():
            return "its message was released"
        keeper, on_lost = heartbeat.keeper, self.on_lost()
        # With "warn", a task whose lease has only expired still starts: the lease may be saved.
        # In strict order it must not, because other messages of its group may run before it by now.
        may_be_saved = on_lost == "warn" and not lease.is_in_order
        may_start = not keeper.is_lost(self._tag) if may_be_saved else keeper.owns(self._tag)
        if may_start:
            return ""
        keeper.disown(self._tag)
        # Otherwise the message would keep its prefetch slot indefinitely.
        self.message.channel.qos.ack(self._tag)
        # By the clock the lease may have expired before the keeper has noticed.
        status = LeaseStatus.EXPIRED if lease.status is LeaseStatus.OWNED else lease.status
        if lease.is_in_order:
            return f"its lease is {status.value}, and SQS delivers its group again"
        return f"its lease is {status.value}, and sqs_heartbeat_on_lost is {on_lost!r}"

    def is_held(self) -> bool:
        """Return whether its message is neither acked nor released yet."""
        if self._heartbeat is None:
            return False
        lease = self._heartbeat.keeper.find(self._tag)
        return lease is not None and lease is self._lease and lease.goal is Goal.HOLD

    def on_lost(self) -> str:
        """Return what happens to its task when the lease is lost."""
        if self._heartbeat is None or self._lease is None:
            return "warn"
        return self._heartbeat.rules.on_lost(self._lease)

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

    def has_started(self) -> bool:
        """Return whether the pool has reported that it runs the task.

        If a task's own strategy reports nothing about it, the task counts as running.
        """
        is_unknown = self._job is None and has_own_strategy(self.task)
        return self._has_begun or (is_unknown and not gathers_requests(self.task))

    def claim_start(self) -> bool:
        """Return whether the task may start: its message is ours, and it was not withdrawn.

        A pool's thread may start the task while another thread releases the message. Only the
        first of the two succeeds, because a released message may run elsewhere at once.
        """
        return not self.is_not_ours() and self._claim(_START)

    def withdraw(self) -> bool:
        """Keep the task from starting; return False if it had already started."""
        return self._claim(_WITHDRAWAL)

    def _claim(self, what: str) -> bool:
        # Atomic: no other thread can run in between.
        return bool(self.__dict__.setdefault("_claimed", what) == what)

    def outlives_consumer(self) -> bool:
        """Return whether the pool runs the task, or will run it after its consumer is closed."""
        if self.has_started() or self._job is None:
            return self.has_started()
        return will_run(self._job())

    def has_job(self) -> bool:
        """Return whether the pool has a job for the task."""
        return self._job is not None and self._job() is not None

    def is_due_for_the_last_time(self) -> bool:
        """Return whether its message was received for the last time, and its task may start."""
        is_due = self.eta is None or self.eta.timestamp() <= time.time()
        return is_due and self._lease is not None and self._lease.is_last_receive

    def is_fifo(self) -> bool:
        """Return whether its message is of a FIFO queue."""
        return self._lease is not None and is_fifo(self._lease.queue_url)

    def release(self, cause: str) -> None:
        """Release the message."""
        self.message.channel.release(self._tag, cause=cause)

    def is_unsettled(self) -> bool:
        """Return whether its message is still leased, and neither acked nor rejected."""
        return self._lease is not None and not self.acknowledged and self.is_held()

    def note_job(self, job: Any) -> None:
        """Note the pool's job that runs its task; some pools have no jobs."""
        self._job = None if job is None else ref(job)

    def begin(self, pid: int | None = None) -> None:
        """Note that the task begins, and in which process."""
        self._has_begun = True
        if self._heartbeat is not None and self._lease is not None:
            self._heartbeat.keeper.note_start(self._tag, pid)

    def on_accepted(self, pid: Any, time_accepted: Any) -> None:
        """Note that the task begins."""
        # In a pool without processes, the pid may be the number of a greenlet.
        has_process = self._heartbeat is not None and self._heartbeat.has_processes
        self.begin(pid if has_process else None)
        super().on_accepted(pid, time_accepted)

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
            self._heartbeat.settled.ack(self._tag)
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
            self._heartbeat.settled.note(self._tag)
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

    def give_up(self, error: Exception, *, is_refused: bool = False) -> str:
        """Release the message like that of a failed task, because its task can't be started.

        If it may have started, the message is left to its visibility timeout. Return what happens
        to the message, for the log; nothing if it is not held, or already settled.

        Args:
            is_refused: Whether the pool did not take the task. Otherwise, a strategy of its own may
                have given it to the pool before the error.
        """
        if self._heartbeat is None or self.acknowledged or not self.is_held():
            return ""
        has_started = self._has_begun if is_refused else self.has_started()
        if has_started or self._job is not None or not self.withdraw():
            self._heartbeat.keeper.let_expire(self._tag, UNSETTLED)
            what = ": its message becomes visible again when its visibility timeout ends"
        else:
            failure = TaskFailure(exception=type(error), is_undeliverable=True)
            self.message.channel.reject(self._tag, requeue=True, failure=failure)
            what = ": its message is released like that of a failed task"
        # Otherwise the message would keep its prefetch slot indefinitely.
        self.message.channel.qos.ack(self._tag)
        return what

    def check_pool(self, error: Exception) -> None:
        """End the worker if its pool, which did not take this task, takes no other either."""
        if self._heartbeat is not None and not self._heartbeat.is_ending:
            self._heartbeat.check_pool(error)

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
        self._failure = task_failure_of(exc_info)
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


def use_leased_requests(app: Celery) -> None:
    """Make every task of the app, also if added later, use requests that know their lease."""
    leased: dict[type, type] = {}
    for task in (app.Task, *app.tasks.values()):
        request = symbol_by_name(task.Request)
        if not issubclass(request, LeasedRequest):
            task.Request = leased.setdefault(
                request, type(request.__name__, (LeasedRequest, request), {})
            )
