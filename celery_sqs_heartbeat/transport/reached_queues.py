"""Makes the keeper reach queues in the same way as the worker."""

from __future__ import annotations

from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.messages import reach
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, ClientPool


class ReachedQueues:
    """Notes how to reach each queue, for the clients of the worker and of its keeper.

    Args:
        clients: The clients with which the worker reads the queues' attributes.
    """

    def __init__(self, clients: ClientPool, keeper: LinkedKeeper) -> None:
        self._clients = clients
        self._keeper = keeper
        self._known: dict[str, tuple[BrokerConfig, float, str]] = {}

    def use(
        self, config: BrokerConfig, queue_url: str, threshold: float, address: str | None = None
    ) -> None:
        """Reach a queue with `config`, and with timeouts that fit `threshold` (seconds).

        Raises:
            ConfigurationError: A transport option can't be sent to the keeper's process.
        """
        self._clients.use(config, queue_url, threshold, address=address)
        self._hand_on(config, queue_url, threshold, address or queue_url)

    def hurry(self, queue_url: str, threshold: float) -> None:
        """Shorten the timeouts of calls for a queue if `threshold` (seconds) requires it."""
        self._clients.hurry(queue_url, threshold)
        config, known, address = self._known[queue_url]
        self._hand_on(config, queue_url, min(known, threshold), address)

    def _hand_on(
        self, config: BrokerConfig, queue_url: str, threshold: float, address: str
    ) -> None:
        known = (config, threshold, address)
        if self._known.get(queue_url) != known:
            self._known[queue_url] = known
            self._keeper.order(*reach(config, queue_url, threshold, address))
