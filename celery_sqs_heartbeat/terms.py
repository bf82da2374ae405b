"""What the leases on each queue are kept by, also when its visibility timeout changes."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from celery_sqs_heartbeat.core import policy
from celery_sqs_heartbeat.core.lease import LeaseTerms
from celery_sqs_heartbeat.queues import QueueDirectory
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.settings.checks import CALLS_PER_SECOND
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT

logger = logging.getLogger(__name__)

#: The shortest visibility timeout that can be leased, in seconds. A queue may have 0: what
#: is received from it is visible again at once.
LEAST_TIMEOUT = 1


class QueueTerms:
    """Works out the terms of leases from the settings and from what the queues say.

    A worker starts on no queue that the settings do not fit. Once it consumes from a queue it
    goes on, whatever becomes of the queue's timeout: it keeps its leases by terms that do fit.

    Args:
        leases: The most messages the worker holds at once; 0 for no bound.

    Attributes:
        can_stop_tasks: Whether the pool can stop a task that runs.
    """

    def __init__(self, settings: Settings, queues: QueueDirectory, leases: int = 0) -> None:
        self.can_stop_tasks = False
        self._settings = settings
        self._queues = queues
        self._leases = leases
        self._timeouts: dict[str, int] = {}
        self._terms: dict[tuple[str, str | None, int | None], LeaseTerms] = {}

    def admit(self, queue: str, queue_url: str) -> LeaseTerms:
        """Check a queue that is to be consumed from; return the terms of leases on it.

        Raises:
            ConfigurationError: The worker is new to the queue, and the settings do not fit it.
        """
        attributes = self._queues.get(queue_url)
        timeout = attributes.visibility_timeout
        if queue not in self._timeouts:
            # One that is only assumed proves nothing against the settings: `of` has them fit it.
            if attributes.is_known or self._is_set(queue):
                self._settings.check_queue(queue, timeout, self._leases)
            self._timeouts[queue] = timeout
        # After a reconnect or a failover the queue may be another one.
        self.follow(queue, queue_url)
        return self.of(queue, self.asked(queue, queue_url))

    def asked(self, queue: str, queue_url: str) -> int | None:
        """Return the visibility timeout to send with a receive, in seconds.

        With every receive: what is known of the queue may be minutes old, and a lease must
        begin with the timeout that its receive really had.

        None where the queue does not say what its own is. What it chose then stands: where
        extensions are refused, too, nothing else would keep its messages.
        """
        if (timeout := self._settings.for_queue(queue).visibility_timeout) is not None:
            return timeout
        attributes = self._queues.get(queue_url)
        return max(attributes.visibility_timeout, LEAST_TIMEOUT) if attributes.is_known else None

    def of(self, queue: str, timeout: int | None, task: str | None = None) -> LeaseTerms:
        """Return the terms for a task's message.

        Args:
            timeout: What its receive asked for; None where the queue's own is not known.
        """
        # Task names come with the messages: only those with rules of their own count.
        key = (queue, task if task in self._settings.tasks else None, timeout)
        terms = self._terms.get(key)
        if terms is None:
            rules = self._settings.for_task(queue, task)
            terms = rules.fitting_terms(timeout or DEFAULT_VISIBILITY_TIMEOUT, self._leases)
            if self.can_stop_tasks and rules.on_lost == "terminate":
                terms = replace(terms, extend_late=False)
            self._terms[key] = terms
        return terms

    def longest_wait(self, queue: str, timeout: int | None, wait: int) -> int:
        """Return for how long a receive may wait, in seconds, where `wait` is wanted."""
        threshold = self.of(queue, timeout).threshold
        return policy.longest_wait(wait, visibility_timeout=timeout or 0, threshold=threshold)

    def most_leases(self) -> float:
        """Return how many messages the worker can keep, of all its queues together.

        Known from the calls that it can make, and so from the queue that takes the most. For a
        worker without a prefetch limit, whose messages were not counted when it started.
        """
        terms = [self.of(queue, timeout) for queue, timeout in self._timeouts.items()]
        return min(
            (
                policy.most_leases(
                    CALLS_PER_SECOND,
                    visibility_timeout=each.visibility_timeout,
                    threshold=each.threshold,
                )
                for each in terms
            ),
            default=math.inf,
        )

    def follow(self, queue: str, queue_url: str) -> bool:
        """Note, and log once, that a queue's visibility timeout is another now.

        Return whether it is, and counts for its leases.
        """
        attributes = self._queues.get(queue_url)
        timeout = attributes.visibility_timeout
        before = self._timeouts.get(queue, timeout)
        if self._is_set(queue) or not attributes.is_known or timeout == before:
            return False
        self._timeouts[queue] = timeout
        self._log_change(queue, before, timeout)
        return True

    def _is_set(self, queue: str) -> bool:
        return self._settings.for_queue(queue).visibility_timeout is not None

    def _log_change(self, queue: str, before: int, timeout: int) -> None:
        terms = self.of(queue, max(timeout, LEAST_TIMEOUT))
        faults = self._settings.faults_with(queue, timeout, self._leases)
        if not faults:
            logger.info(
                "sqs-heartbeat: the visibility timeout of queue %s is %d s now, and was %d s: what "
                "is received from now on is extended when less than %.3g s are left",
                queue,
                timeout,
                before,
                terms.threshold,
            )
            return
        logger.warning(
            "sqs-heartbeat: the visibility timeout of queue %s is %d s now, and was %d s, which "
            "the settings do not fit: %s. What is received from now on is kept with a visibility "
            "timeout of %d s, a threshold of %.3g s and a max_lease of %g s. Change the setting, "
            "or the queue's visibility timeout: a worker that starts now will not consume from it",
            queue,
            timeout,
            before,
            "; ".join(faults),
            terms.visibility_timeout,
            terms.threshold,
            terms.max_lease,
        )
