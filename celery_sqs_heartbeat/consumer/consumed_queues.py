"""Tells the keeper's process how to reach the queues that a consumer receives from."""

from __future__ import annotations

import threading

from celery_sqs_heartbeat.consumer.handover import config_of, fault_of
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.reaching import reach
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import BrokerConfig


class ConsumedQueues:
    """Tells the keeper how to reach each queue: when it is first used, and when that changes.

    Args:
        sqs: Reaches the queues for the consumer.
        session: Names a function that makes the process's session; None for boto3's default.
    """

    def __init__(self, sqs: BotoSqs, keeper: LinkedKeeper, session: str | None) -> None:
        self._sqs = sqs
        self._keeper = keeper
        self._session = session
        # Re-entrant: a signal handler may receive, too.
        self._lock = threading.RLock()
        self._known: dict[str, tuple[BrokerConfig, float, str]] = {}

    def use(self, queue_url: str, threshold: float) -> None:
        """Have the keeper reach a queue, with timeouts that fit its smallest threshold so far.

        Args:
            threshold: In seconds.

        Raises:
            ConfigurationError: The keeper's process cannot make the queue's client.
        """
        client, address = self._sqs.client_for(queue_url), self._sqs.address(queue_url)
        if queue_url not in self._known and (fault := fault_of(client, self._session)):
            raise ConfigurationError([fault])
        config = config_of(client)
        with self._lock:
            known = self._known.get(queue_url)
            new = (config, min(threshold, known[1]) if known else threshold, address)
            if new != known:
                self._known[queue_url] = new
                self._keeper.order(*reach(config, queue_url, new[1], address), about=(queue_url,))
