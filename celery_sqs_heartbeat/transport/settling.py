"""Settles leased messages, and decides how long one that failed stays hidden."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery.exceptions import WorkerShutdown, WorkerTerminate
from kombu.transport import SQS

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.current.current_message import asked_delay
from celery_sqs_heartbeat.leases.events import KEPT, UNDELIVERABLE
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.policy import cut_release_delay
from celery_sqs_heartbeat.settings.release_delay import (
    Failure,
    QueueInfo,
    UnusableDelay,
    backoff,
    choose_delay,
    name_of,
)
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """How a task failed, or that it requested the release of its message.

    Attributes:
        exception: The type of the error it raised; None if not known.
        is_wanted: Whether it raised `ReleaseMessage`, which is not a failure.
        is_retry: Whether it must be retried (see `worker.retrying`), which is not a failure either.
        is_undeliverable: Whether the task could not start, most likely because of its message.
        delay: The delay that it requested with that, in seconds; None if it requested none.
        reason: Its reason, for the log; empty if it gave none.
    """

    exception: type[BaseException] | None = None
    is_wanted: bool = False
    is_retry: bool = False
    is_undeliverable: bool = False
    delay: float | None = None
    reason: str = ""

    @property
    def cause(self) -> str:
        """Why the message is released, in one to three words."""
        if self.is_retry:
            return "retried"
        if self.is_undeliverable:
            return UNDELIVERABLE
        return "asked by task" if self.is_wanted else "failed"


#: A failure about which nothing is known.
UNKNOWN = TaskFailure()


@dataclass(frozen=True, repr=False)
class Delays:
    """Finds the release delay after a failure.

    If this was the last receive before the dead-letter queue, the message is released at once, so
    that SQS moves it. Otherwise the first delay of these counts: the one that the task requested,
    kombu's backoff policy, the setting.
    """

    heartbeat: Heartbeat
    now: Callable[[], float] = clock.now

    def after(
        self,
        lease: Lease,
        handle: str,
        *,
        ended: TaskFailure = UNKNOWN,
        backoff: float | None = None,
    ) -> float | None:
        """Return the delay in seconds, or None to let the lease expire.

        Args:
            handle: The receipt handle by which the task knows its message.
            backoff: The delay of kombu's own backoff policy.
        """
        failure = self._failure(lease, ended)
        delay = self._choose(lease, failure, (ended.delay, asked_delay(handle), backoff))
        if ended.is_wanted:
            self._log_wanted(lease, delay, is_last=failure.is_last_receive, reason=ended.reason)
        return delay

    def _log_wanted(self, lease: Lease, delay: float | None, *, is_last: bool, reason: str) -> None:
        sent = None if delay is None else cut_release_delay(lease, delay, self.now())
        logger.info(
            "sqs-heartbeat: task %s[%s] %s%s",
            lease.task,
            lease.task_id,
            _said(sent, is_last=is_last),
            f": {reason}" if reason else "",
        )

    def _choose(
        self, lease: Lease, failure: Failure, asked: tuple[float | None, ...]
    ) -> float | None:
        if failure.is_last_receive:
            return 0.0
        for delay in asked:
            if delay is not None:
                return delay
        self._warn_without_dead_letters(failure.queue)
        return self._configured(lease, failure)

    def _configured(self, lease: Lease, failure: Failure) -> float | None:
        try:
            return choose_delay(self.heartbeat.leased.rules_of(lease).release_delay, failure)
        except (WorkerShutdown, WorkerTerminate):
            # A signal handler raised it while the function happened to run.
            raise
        except (Exception, SystemExit) as error:
            self._log_failed(lease, failure, error)
            return backoff(failure.receive_count)

    def _log_failed(self, lease: Lease, failure: Failure, error: BaseException) -> None:
        is_raised = not isinstance(error, UnusableDelay)
        function = name_of(self.heartbeat.leased.rules_of(lease).release_delay)
        queue = failure.queue.name
        logger.error(
            "sqs-heartbeat: the function %s, set as %s, failed: %s; message %s of queue %s, task "
            "%s[%s], is released with the default delay",
            function,
            self.heartbeat.settings.place_of("release_delay", queue, lease.task),
            f"{type(error).__name__}: {error}" if is_raised else error,
            lease.message_id,
            queue,
            lease.task,
            lease.task_id,
            # Only an error raised by the user's function needs a traceback.
            exc_info=is_raised,
        )

    def _warn_without_dead_letters(self, queue: QueueInfo) -> None:
        lacks = queue.is_known and queue.max_receive_count is None
        if lacks and self.heartbeat.first_time(f"no dead-letter queue {queue.url}"):
            logger.warning(
                "sqs-heartbeat: queue %s has no dead-letter queue: a message whose task always "
                "fails is received again indefinitely. Give the queue a redrive policy",
                queue.url,
            )

    def _failure(self, lease: Lease, ended: TaskFailure) -> Failure:
        attributes = self.heartbeat.queues.get(lease.queue_url)
        sent = lease.sent_time
        return Failure(
            queue=QueueInfo(
                name=self.heartbeat.leased.names[lease.queue_url],
                url=lease.queue_url,
                visibility_timeout=lease.terms.visibility_timeout,
                max_receive_count=attributes.max_receive_count,
                is_known=attributes.is_known,
            ),
            receive_count=max(lease.receive_count, 1),
            exception=ended.exception,
            # SQS's clock may be ahead of this machine's.
            message_age=None if sent is None else max(0.0, time.time() - sent),
        )


def _said(delay: int | None, *, is_last: bool) -> str:
    if is_last:
        return (
            "released its message at once (that was its last receive, and SQS moves it to the "
            "dead-letter queue)"
        )
    if delay is None:
        return "leaves its message hidden until its visibility timeout ends"
    return f"released its message for {delay} s" if delay else "released its message at once"


class SettlingChannel(KombuChannel):
    """Decides how the lease of each of its messages ends.

    Args:
        connection: kombu's transport.
    """

    def __init__(self, connection: Any, *, heartbeat: Heartbeat) -> None:
        self.heartbeat = heartbeat
        self._delays = Delays(heartbeat)
        super().__init__(connection)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Have the keeper delete the message until SQS confirms it, and free its slot."""
        keeper = self.heartbeat.keeper
        if not self._forget_settled(delivery_tag):
            if keeper.find(delivery_tag) is None:
                super().basic_ack(delivery_tag, multiple)
                return
            keeper.done(delivery_tag)
        self.qos.ack(delivery_tag)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Settle a rejected message, unless its request has done so, and free its slot."""
        self.reject(delivery_tag, requeue=requeue)
        if self._forget_settled(delivery_tag):
            self.qos.ack(delivery_tag)
        else:
            super().basic_reject(delivery_tag, requeue=requeue)

    def _forget_settled(self, delivery_tag: str) -> bool:
        """Return whether the message was settled before its ack or reject arrived here.

        That is remembered until then, and forgotten by this call.
        """
        if not self.heartbeat.is_settled(delivery_tag):
            return False
        self.heartbeat.settled.discard(delivery_tag)
        return True

    def reject(self, delivery_tag: str, *, requeue: bool, failure: TaskFailure = UNKNOWN) -> None:
        """Release a message that must run again. Settle any other as kombu does.

        Can be called from any thread, and on a closed channel. `basic_reject` frees the prefetch
        slot.
        """
        heartbeat = self.heartbeat
        lease = heartbeat.keeper.find(delivery_tag)
        if lease is None or heartbeat.is_settled(delivery_tag):
            return
        delay = self.backoff_delay(delivery_tag, lease.task, lease.receive_count)
        if requeue:
            delay = self._delays.after(lease, delivery_tag, ended=failure, backoff=delay)
        elif delay is not None and lease.is_last_receive:
            # Release it at once, so that SQS moves it to the dead-letter queue.
            delay = 0.0
        if delay is not None:
            cause = failure.cause if requeue else "backoff policy"
            heartbeat.keeper.release(delivery_tag, delay, cause)
        elif not requeue and self._kombu_would_delete(delivery_tag, lease):
            heartbeat.keeper.done(delivery_tag)
        else:
            heartbeat.keeper.let_expire(delivery_tag, KEPT)
        heartbeat.settled.add(delivery_tag)

    def _kombu_would_delete(self, delivery_tag: str, lease: Lease) -> bool:
        if not self.deletes_rejected(delivery_tag):
            return False
        attributes = self.heartbeat.queues.get(lease.queue_url)
        return attributes.is_known and attributes.max_receive_count is None

    def give_up(self, delivery_tag: str, error: Exception) -> None:
        """Release a message that can't be delivered, like that of a failed task.

        If its task may have started, the message is left to its visibility timeout.
        """
        lease = self.heartbeat.keeper.find(delivery_tag)
        request = self.heartbeat.requests.get(lease.key) if lease is not None else None
        if request is not None:
            request.give_up(error)
        else:
            failure = TaskFailure(exception=type(error), is_undeliverable=True)
            self.reject(delivery_tag, requeue=True, failure=failure)
            self._forget_settled(delivery_tag)
        if self.takes_slot(delivery_tag):
            # Otherwise it would keep its prefetch slot indefinitely.
            self.qos.ack(delivery_tag)

    def release(self, delivery_tag: str, *, cause: str) -> None:
        """Make a message visible again, and free its slot."""
        if self.heartbeat.keeper.release(delivery_tag, cause=cause):
            self.qos.ack(delivery_tag)

    def _restore(self, message: Any, *args: Any, **kwargs: Any) -> None:
        """Release an unsettled message of a closed consumer, unless its task continues."""
        heartbeat, delivery_tag = self.heartbeat, message.delivery_tag
        if heartbeat.is_settled(delivery_tag):
            return
        lease = heartbeat.keeper.find(delivery_tag)
        if lease is None:
            super()._restore(message, *args, **kwargs)
            return
        request = heartbeat.requests.get(lease.key)
        if request is None or (not request.outlives_consumer() and request.withdraw()):
            self.release(delivery_tag, cause="consumer closed")


class QoS(SQS.QoS):
    """Counts prefetched messages as kombu does, and reports when there is room again."""

    def ack(self, delivery_tag: str) -> None:
        """Free the message's prefetch slot, and receive what there is room for now."""
        super().ack(delivery_tag)
        self.channel.feed.note_end(delivery_tag)
