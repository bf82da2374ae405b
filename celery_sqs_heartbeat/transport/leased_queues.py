"""The queues whose messages a worker leases. They are checked when it starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from celery_sqs_heartbeat.common.wording import seconds
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.adapter import DEFAULT_VISIBILITY_TIMEOUT, QueueAttributes
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.once import Once
from celery_sqs_heartbeat.transport.reached_queues import ReachedQueues
from celery_sqs_heartbeat.transport.terms import QueueTerms

logger = logging.getLogger(__name__)


class LeasedQueues:
    """Makes queues ready to be consumed from, and knows the URL that their leases use.

    Args:
        has_limit: Whether the number of messages that the worker holds at once is limited.

    Attributes:
        names: The names of the queues that are ready, by URL.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        queues: QueueDirectory,
        clients: ReachedQueues,
        terms: QueueTerms,
        once: Once,
        has_limit: bool,
    ) -> None:
        self.names: dict[str, str] = {}
        self._settings = settings
        self._queues = queues
        self._clients = clients
        self._terms = terms
        self._once = once
        self._has_limit = has_limit
        self._first_urls: dict[str, str] = {}
        self._lease_urls: dict[str, str] = {}

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
            faults += self._terms.faults(queue, queue_url)
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
        terms = self._terms.admit(queue, queue_url)
        attributes = self._queues.get(queue_url)
        lease_url = self._first_urls.setdefault(attributes.arn or queue_url, queue_url)
        self._lease_urls[queue_url] = lease_url
        self._clients.use(config, lease_url, terms.threshold, address=queue_url)
        logger.info(
            "sqs-heartbeat: messages of queue %s are kept: visibility timeout %d s (%s), "
            "extended when less than %s s are left, for %s s at most",
            queue,
            terms.visibility_timeout,
            _origin(rules.visibility_timeout, attributes),
            seconds(terms.threshold),
            seconds(terms.max_lease),
        )
        if not self._has_limit and self._once.first_time("no prefetch limit"):
            logger.warning(
                "sqs-heartbeat: worker_prefetch_multiplier=0 sets no limit to the messages that "
                "this worker receives, even while other workers are idle. It stops at %d messages, "
                "as many as it can keep extended. Set worker_prefetch_multiplier to 1 to 4",
                self._terms.most_leases(),
            )

    def lease_url(self, queue_url: str) -> str:
        """Return the URL that identifies a queue in our leases: the first one it had.

        After a failover to another broker URL, the queue has another URL. Its messages and our
        leases on them stay the same. The calls they still need go to the new URL.
        """
        return self._lease_urls.get(queue_url, queue_url)

    def asked_timeout(self, queue: str, queue_url: str) -> int | None:
        """Return the visibility timeout to send with a receive; see `QueueTerms.asked`.

        If the queue's own timeout has changed, the timeouts of calls are shortened to fit it.
        """
        self._terms.has_begun = True
        has_changed = self._terms.follow(queue, queue_url)
        timeout = self._terms.asked(queue, queue_url)
        if has_changed:
            threshold = self._terms.of(queue, timeout).threshold
            self._clients.hurry(self.lease_url(queue_url), threshold)
        return timeout

    def _reach(self, queue: str, queue_url: str, config: BrokerConfig) -> None:
        threshold = self._settings.for_queue(queue).terms(DEFAULT_VISIBILITY_TIMEOUT).threshold
        self._clients.use(config, queue_url, threshold)


def _origin(set_timeout: int | None, attributes: QueueAttributes) -> str:
    if set_timeout is not None:
        return "set"
    return "its own" if attributes.is_known else "assumed"
