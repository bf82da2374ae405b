"""What the leases on each queue are kept by, also when its visibility timeout changes."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from celery_sqs_heartbeat.common.wording import seconds
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.settings.checks import CALLS_PER_SECOND
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT
from celery_sqs_heartbeat.sqs.queues import QueueDirectory

logger = logging.getLogger(__name__)

#: The shortest visibility timeout that can be leased, in seconds. A queue may have 0: what
#: is received from it is visible again at once.
LEAST_TIMEOUT = 1


class QueueTerms:
    """Works out the terms of leases from the settings and from what the queues say.

    A worker does not start with a queue that the settings do not fit. Once it has begun to
    receive, it goes on, whatever queue is added and whatever becomes of a queue's timeout: it
    keeps its leases by terms that do fit.

    Args:
        leases: The most messages the worker holds at once; 0 for no bound.

    Attributes:
        can_stop_tasks: Whether the pool can stop a task that runs.
        has_begun: Whether the worker has received from any queue: it is not to end any more
            because of its settings.
    """

    def __init__(self, settings: Settings, queues: QueueDirectory, leases: int = 0) -> None:
        self.can_stop_tasks = False
        self.has_begun = False
        self._settings = settings
        self._queues = queues
        self._leases = leases
        self._timeouts: dict[str, int] = {}
        self._terms: dict[tuple[str, str | None, int | None], LeaseTerms] = {}

    def faults(self, queue: str, queue_url: str) -> list[str]:
        """Return how the settings do not fit a queue that is new to the worker."""
        attributes = self._queues.get(queue_url)
        # One that is only assumed proves nothing against the settings: `of` has them fit it.
        if queue in self._timeouts or not (attributes.is_known or self._is_set(queue)):
            return []
        return self._settings.faults_with(queue, attributes.visibility_timeout, self._leases)

    def admit(self, queue: str, queue_url: str) -> LeaseTerms:
        """Check a queue that is to be consumed from; return the terms of leases on it.

        Raises:
            ConfigurationError: The settings do not fit it, and the worker has not begun.
        """
        faults = self.faults(queue, queue_url)
        if faults and not self.has_begun:
            raise ConfigurationError(faults)
        timeout = self._timeouts.setdefault(queue, self._queues.get(queue_url).visibility_timeout)
        if faults:
            self._log_misfit(f"queue {queue} was added", queue, timeout, faults)
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
            leases = self._settings.leases_on(queue, self._leases)
            terms = rules.fitting_terms(timeout or DEFAULT_VISIBILITY_TIMEOUT, leases)
            terms = replace(terms, in_order=self._settings.keeps_order(queue))
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
                "sqs-heartbeat: the visibility timeout of queue %s is %d s now, and was %d s: "
                "messages received from now on are extended when less than %s s are left",
                queue,
                timeout,
                before,
                seconds(terms.threshold),
            )
            return
        event = f"the visibility timeout of queue {queue} is {timeout} s now, and was {before} s"
        self._log_misfit(event, queue, timeout, faults)

    def _log_misfit(self, event: str, queue: str, timeout: int, faults: list[str]) -> None:
        terms = self.of(queue, max(timeout, LEAST_TIMEOUT))
        logger.warning(
            "sqs-heartbeat: %s, which the settings do not fit: %s. Messages received from now on "
            "are kept with a visibility timeout of %d s, a threshold of %s s and a max_lease of "
            "%s s. Change the setting, or the queue's visibility timeout: until then, a worker "
            "with this queue refuses to start",
            event,
            "; ".join(faults),
            terms.visibility_timeout,
            seconds(terms.threshold),
            seconds(terms.max_lease),
        )
