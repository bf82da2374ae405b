"""What kombu makes of the broker's configuration, without a call to SQS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kombu.transport import SQS

from celery_sqs_heartbeat.sqs.clients import BrokerConfig


class _OfflineChannel(SQS.Channel):
    """Knows what kombu makes of the configuration. kombu's own asks SQS when it is made."""

    def _update_queue_cache(self, queue_name_prefix: str) -> None:
        """Ask for no queues."""


@dataclass(frozen=True, kw_only=True)
class Broker:
    """How SQS is reached, and by which names the app's queues go there."""

    config: BrokerConfig
    channel: Any

    @classmethod
    def of_app(cls, app: Any) -> Broker:
        """Read the broker's configuration of an app.

        Raises:
            Exception: kombu can't use it.
        """
        channel = _OfflineChannel(app.connection_for_read().transport)
        return cls(config=BrokerConfig.of_channel(channel), channel=channel)

    def sqs_name(self, queue: str) -> str:
        """Return the name that a queue of the app has at SQS."""
        return str(self.channel.canonical_queue_name(queue))

    def predefined_url(self, queue: str) -> str | None:
        """Return the URL that `predefined_queues` has for a queue of the app."""
        url = self.config.predefined.get(self.sqs_name(queue), {}).get("url")
        return None if url is None else str(url)
