"""kombu's view of the broker's configuration, without a call to SQS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kombu.transport import SQS

from celery_sqs_heartbeat.sqs.clients import BrokerConfig


class _OfflineChannel(SQS.Channel):
    """Reads the configuration like kombu's channel, which calls SQS when it is created."""

    def _update_queue_cache(self, queue_name_prefix: str) -> None:
        """Do not list queues."""


@dataclass(frozen=True, kw_only=True)
class Broker:
    """How SQS is reached, and the names of the app's queues at SQS."""

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
