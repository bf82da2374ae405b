"""The queues that are consumed from: what their receives ask for, and their attributes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from celery_sqs_heartbeat.common.clock import now
from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.lease import SQS, LeaseTerms
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes, of_exception

logger = logging.getLogger(__name__)

#: How long a queue's attributes are used before they are read again, in seconds. A worker should
#: notice a new dead-letter queue without a restart.
REFRESH_SECONDS = 300.0
#: How soon attributes that could not be read are requested again, in seconds.
RETRY_SECONDS = 5.0
#: Why attributes could not be read, by SQS's answer. For other answers, the error says why.
_CAUSES = {
    Outcome.DENIED: "the permission sqs:GetQueueAttributes is missing",
    Outcome.NO_QUEUE: "SQS knows no such queue, or hides it from this worker",
    Outcome.THROTTLED: "SQS asks for fewer calls",
}


@dataclass(eq=False, repr=False)
class QueueDirectory:
    """Caches the attributes of queues, and refreshes them on another thread.

    Attributes:
        read: Reads a queue's attributes; may raise any error.
        run: Runs a function on another thread.
        clock: Monotonic seconds.
    """

    read: Callable[[str], QueueAttributes]
    run: Callable[[Callable[[], None]], None]
    clock: Callable[[], float] = now
    _known: dict[str, tuple[QueueAttributes, float]] = field(default_factory=dict, init=False)
    #: The last logged cause by queue, because unreadable attributes are requested repeatedly.
    _logged: dict[str, str] = field(default_factory=dict, init=False)

    def get(self, queue_url: str) -> QueueAttributes:
        """Return a queue's attributes. Waits for SQS only the first time.

        Without a lock, because a signal handler calls this, too. At worst, two threads read them.
        """
        known = self._known.get(queue_url)
        if known is None:
            self._refresh(queue_url)
            return self._known[queue_url][0]
        attributes, read_at = known
        if self.clock() - read_at >= (REFRESH_SECONDS if attributes.is_known else RETRY_SECONDS):
            # First, because starting a thread lets others run with gevent and eventlet.
            self._known[queue_url] = (attributes, self.clock())
            self.run(lambda: self._refresh(queue_url))
        return attributes

    def _refresh(self, queue_url: str) -> None:
        try:
            attributes = self.read(queue_url)
        except Exception as error:
            known = self._known.get(queue_url)
            # Attributes that were read before stay valid.
            attributes = known[0] if known else QueueAttributes(is_known=False)
            self._log(queue_url, error, attributes)
        else:
            self._logged.pop(queue_url, None)
        self._known[queue_url] = (attributes, self.clock())

    def _log(self, queue_url: str, error: Exception, attributes: QueueAttributes) -> None:
        cause = _cause_of(error)
        if self._logged.get(queue_url) != cause:
            self._logged[queue_url] = cause
            logger.warning(
                "sqs-heartbeat: could not read the attributes of queue %s: %s (%s); its visibility "
                "timeout is taken to be %d s until they are read",
                queue_url,
                cause,
                str(error) or type(error).__name__,
                attributes.visibility_timeout,
            )


def _cause_of(error: Exception) -> str:
    """Return why attributes could not be read, in words."""
    if isinstance(error, (TimeoutError, ConnectTimeoutError, ReadTimeoutError)):
        return "SQS did not answer in time"
    return _CAUSES.get(of_exception(error, "GetQueueAttributes"), "the call failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedQueue:
    """A queue as one channel consumes from it.

    Attributes:
        name: The worker's name for it.
        url: Where it is reached now.
        lease_url: Its URL in the leases on its messages, which stays the same.
        terms: The terms of its leases.
        task_terms: Those of tasks that have their own, by the task's name.
        timeout: The visibility timeout that a receive requests, in seconds; None if it requests
            none, because the queue's own is not known.
        max_receive_count: From its redrive policy; None without one, or if unknown.
        batch: The most messages that one receive asks for.
        wait: How long a poll waits for messages, in seconds.
        pause: The pause after an empty answer, in seconds.
        attributes: What to request with each message, see `BotoSqs.receive`.
    """

    name: str
    url: str
    lease_url: str
    terms: LeaseTerms
    task_terms: Mapping[str, LeaseTerms] = field(default_factory=dict)
    timeout: int | None = None
    max_receive_count: int | None = None
    batch: int = SQS.most_received
    wait: int = 0
    pause: float = 0.0
    attributes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def terms_of(self, task: str | None) -> LeaseTerms:
        """Return the terms of the lease on a task's message."""
        return self.terms if task is None else self.task_terms.get(task, self.terms)
