"""The queues whose messages a worker leases, and how the settings apply to their leases."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace

from celery_sqs_heartbeat.common.escaping import seconds
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.lease import SQS, Lease, LeaseTerms
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.messages import reach
from celery_sqs_heartbeat.settings import Rules, Settings
from celery_sqs_heartbeat.settings.rules import CALLS_PER_SECOND, DEFAULT_FIFO_BATCH
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT, QueueAttributes
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, ClientPool
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue, QueueDirectory
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel

logger = logging.getLogger(__name__)

#: The shortest visibility timeout that can be leased, in seconds. A queue may have 0: then its
#: messages are visible again at once.
LEAST_TIMEOUT = 1


class LeasedQueues:
    """Makes queues ready to be consumed from, and computes the terms of the leases on each.

    The terms follow from the settings and the queue's attributes. A worker does not start with a
    queue that the settings do not fit. Once it has begun to receive, it continues, even if a queue
    is added or a queue's timeout changes. It then keeps its leases by terms that fit.

    Args:
        clients: The clients with which the worker reads the queues' attributes.
        keeper: Learns how to reach each queue, too.
        leases: The most messages the worker holds at once; 0 for no limit.

    Attributes:
        names: The names of the queues that are ready, by URL.
        can_stop_tasks: Whether the pool can stop a running task.
        has_begun: Whether the worker has begun to receive. From then on, it must not end because
            of its settings.
    """

    def __init__(
        self,
        settings: Settings,
        queues: QueueDirectory,
        clients: ClientPool,
        keeper: LinkedKeeper,
        leases: int = 0,
    ) -> None:
        self.names: dict[str, str] = {}
        self.can_stop_tasks = False
        self.has_begun = False
        self._settings, self._queues, self._leases = settings, queues, leases
        self._clients, self._keeper = clients, keeper
        self._reached: dict[str, tuple[BrokerConfig, float, str]] = {}
        self._timeouts: dict[str, int] = {}
        self._terms: dict[tuple[str, str | None, int | None], LeaseTerms] = {}
        self._has_warned = False
        self._first_urls: dict[str, str] = {}
        self._lease_urls: dict[str, str] = {}

    def rules_of(self, lease: Lease) -> Rules:
        """Return the settings that apply to a lease, by its queue and task."""
        return self._settings.for_task(self.names[lease.queue_url], lease.task)

    def releases_retries(self, lease: Lease) -> bool:
        """Return whether a retry of a lease's task releases its message."""
        return self._settings.releases_retries(self.names[lease.queue_url], lease.task)

    def hold_eta(self, lease: Lease) -> float:
        """Return the longest wait for an ETA during which the message is held, in seconds."""
        hold, terms = self.rules_of(lease).hold_eta, lease.terms
        if hold is not None:
            return hold
        return policy.default_hold_eta(terms.visibility_timeout, terms.threshold)

    def check(self, urls: Mapping[str, str], config: BrokerConfig) -> None:
        """Check the queues with which a worker starts. Blocks on SQS once per queue.

        Args:
            urls: The queues' URLs by name.

        Raises:
            ConfigurationError: The settings do not fit them. The error lists all faults.
        """
        faults = []
        for queue, queue_url in urls.items():
            self._reach(queue, queue_url, config)
            faults += self.faults(queue, queue_url)
        if faults:
            raise ConfigurationError(faults)

    def prepare(self, queue: str, queue_url: str, config: BrokerConfig) -> None:
        """Make a queue ready to be consumed from. Blocks on SQS once per queue.

        Raises:
            ConfigurationError: The settings do not fit the queue's visibility timeout, and the
                worker has not received from any queue yet.
        """
        self.names[queue_url] = queue
        rules = self._settings.for_queue(queue)
        self._reach(queue, queue_url, config)
        terms = self.admit(queue, queue_url)
        attributes = self._queues.get(queue_url)
        # After a failover to another broker URL, the queue has another URL. Its messages and our
        # leases on them stay the same. The calls they still need go to the new URL.
        lease_url = self._first_urls.setdefault(attributes.arn or queue_url, queue_url)
        self._lease_urls[queue_url] = lease_url
        self._use(config, lease_url, terms.threshold, queue_url)
        logger.info(
            "sqs-heartbeat: messages of queue %s are kept: visibility timeout %d s (%s), "
            "extended when less than %s s are left, for %s s at most",
            queue,
            terms.visibility_timeout,
            _origin(rules.visibility_timeout, attributes),
            seconds(terms.threshold),
            seconds(terms.max_lease),
        )
        if not self._leases and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "sqs-heartbeat: worker_prefetch_multiplier=0 sets no limit to the messages that "
                "this worker receives, even while other workers are idle. It stops at %d messages, "
                "as many as it can keep extended. Set worker_prefetch_multiplier to 1 to 4",
                self.most_leases(),
            )

    def faults(self, queue: str, queue_url: str) -> list[str]:
        """Return the faults of the settings for a queue that is new to the worker."""
        attributes = self._queues.get(queue_url)
        # A timeout that is only assumed proves no fault. `of` makes the settings fit it.
        if queue in self._timeouts or not (attributes.is_known or self._is_set(queue)):
            return []
        return self._settings.faults_with(queue, attributes.visibility_timeout, self._leases)

    def admit(self, queue: str, queue_url: str) -> LeaseTerms:
        """Check a queue before it is consumed from. Return the terms of leases on it.

        Raises:
            ConfigurationError: The settings do not fit it, and the worker has not begun to receive.
        """
        faults = self.faults(queue, queue_url)
        if faults and not self.has_begun:
            raise ConfigurationError(faults)
        timeout = self._timeouts.setdefault(queue, self._queues.get(queue_url).visibility_timeout)
        if faults:
            self._log_misfit(f"queue {queue} was added", queue, timeout, faults)
        # After a reconnect or a failover, it may be a different queue.
        self.follow(queue, queue_url)
        return self.of(queue, self.asked(queue, queue_url))

    def asked(self, queue: str, queue_url: str) -> int | None:
        """Return the visibility timeout to send with a receive, in seconds.

        It is sent with every receive, because the known attributes of the queue may be minutes old,
        and a lease must begin with the actual timeout of its receive.

        None if the queue's own timeout can't be read. Then the queue's timeout applies: if SQS
        refuses extensions, too, nothing else would keep its messages.
        """
        if (timeout := self._settings.for_queue(queue).visibility_timeout) is not None:
            return timeout
        attributes = self._queues.get(queue_url)
        return max(attributes.visibility_timeout, LEAST_TIMEOUT) if attributes.is_known else None

    def of(self, queue: str, timeout: int | None, task: str | None = None) -> LeaseTerms:
        """Return the terms for a task's message.

        Args:
            timeout: The timeout that its receive requested; None if the queue's own is not known.
        """
        # Senders choose task names, so only names that have their own settings are cached.
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

    def most_leases(self) -> float:
        """Return how many messages the worker can keep, of all its queues together.

        The number follows from the calls that the worker can make, for the queue that needs the
        most calls. It serves workers without a prefetch limit: their number of messages could not
        be checked at the start.
        """
        kept = [
            policy.most_leases(CALLS_PER_SECOND, terms.visibility_timeout, terms.threshold)
            for terms in (self.of(queue, timeout) for queue, timeout in self._timeouts.items())
        ]
        return min(kept, default=math.inf)

    def follow(self, queue: str, queue_url: str) -> bool:
        """Note, and log once, that a queue's visibility timeout has changed.

        Return whether it has, and whether that affects its leases.
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

    def consumed(self, queue: str, queue_url: str, channel: KombuChannel) -> ConsumedQueue:
        """Describe a queue of a channel as the settings and its attributes are now."""
        self.has_begun = True
        has_changed = self.follow(queue, queue_url)
        timeout = self.asked(queue, queue_url)
        terms = self.of(queue, timeout)
        lease_url = self._lease_urls.get(queue_url, queue_url)
        if has_changed:
            # The timeouts of calls are shortened to fit it.
            config, threshold, address = self._reached[lease_url]
            self._use(config, lease_url, min(threshold, terms.threshold), address)
        keeps_order = self._settings.keeps_order(queue)
        batch = self._settings.for_queue(queue).fifo_batch or DEFAULT_FIFO_BATCH
        return ConsumedQueue(
            name=queue,
            url=queue_url,
            lease_url=lease_url,
            terms=terms,
            task_terms={task: self.of(queue, timeout, task) for task in self._settings.tasks},
            timeout=timeout,
            max_receive_count=self._queues.get(lease_url).max_receive_count,
            batch=batch if keeps_order else SQS.most_received,
            wait=policy.longest_wait(channel.wait_time_seconds, timeout or 0, terms.threshold),
            pause=float(channel.connection.polling_interval or 0),
            attributes=channel.wanted_attributes(),
        )

    def _reach(self, queue: str, queue_url: str, config: BrokerConfig) -> None:
        threshold = self._settings.for_queue(queue).terms(DEFAULT_VISIBILITY_TIMEOUT).threshold
        self._use(config, queue_url, threshold, queue_url)

    def _use(self, config: BrokerConfig, queue_url: str, threshold: float, address: str) -> None:
        """Have the worker and its keeper reach a queue with timeouts that fit `threshold`."""
        self._clients.use(config, queue_url, threshold, address=address)
        known = (config, threshold, address)
        if self._reached.get(queue_url) != known:
            self._reached[queue_url] = known
            self._keeper.order(*reach(config, queue_url, threshold, address))


def _origin(set_timeout: int | None, attributes: QueueAttributes) -> str:
    if set_timeout is not None:
        return "set"
    return "its own" if attributes.is_known else "assumed"
