"""The facts about an app's broker that need no call to SQS, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kombu.transport import SQS

from celery_sqs_heartbeat.settings.address import is_loopback
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.options import creation_faults, option_faults
from celery_sqs_heartbeat.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The facts about the app's broker. Times are in seconds.

    Attributes:
        transport: The name of its transport.
        is_sqs: Whether the broker is SQS, by kombu's transport or one that derives from it.
        own_transport: A transport that derives from kombu's. The heartbeat does not replace it.
        broken: Why kombu can't use the broker's configuration.
        option_faults: The faults of the transport options.
        creation_faults: The faults of those that matter only when kombu creates a queue.
        plain_http: The address of SQS, if it is not this machine's and has no TLS.
    """

    transport: str = "sqs"
    is_sqs: bool = True
    own_transport: str | None = None
    broken: str | None = field(default=None, repr=False)
    option_faults: Sequence[str] = ()
    creation_faults: Sequence[str] = ()
    wait_time: int = 10
    polling_interval: float = 1
    created_timeout: object = None
    is_predefined: bool = True
    plain_http: str | None = field(default=None, repr=False)

    @property
    def fault(self) -> str | None:
        """Why SQS can't be called with the app's configuration, or None."""
        return self.broken or "; ".join(self.option_faults) or None


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


def read_broker(app: Any) -> BrokerFacts:
    """Return the facts about an app's broker, and whether kombu can use its configuration."""
    faults = tuple(option_faults(app.conf.broker_transport_options))
    try:
        connection = app.connection_for_read()
    except Exception as error:
        if not isinstance(app.conf.broker_transport_options, Mapping):
            return BrokerFacts(is_sqs=False, broken="; ".join(faults))
        return _unusable(app, error)
    try:
        transport = connection.get_transport_cls()
    except Exception as error:
        # For example kombu's transport for Redis, if no Redis client is installed.
        unusable = f"{connection.transport_cls} (not usable here: {type(error).__name__})"
        return BrokerFacts(is_sqs=False, transport=unusable)
    if not issubclass(transport, SQS.Transport):
        return BrokerFacts(is_sqs=False, transport=transport.driver_type)
    is_own = transport not in (SQS.Transport, Transport)
    own_transport = f"{transport.__module__}:{transport.__qualname__}" if is_own else None
    if faults:
        # With wrong options kombu would report the same faults, but less clearly.
        return BrokerFacts(own_transport=own_transport, option_faults=faults)
    plain_http = broken = None
    try:
        plain_http = _plain_http(Broker.of_app(app).config)
    except Exception as error:
        broken = f"{type(error).__name__}: {error}"
    options = connection.transport_options or {}
    interval = options.get("polling_interval")
    return BrokerFacts(
        own_transport=own_transport,
        broken=broken,
        plain_http=plain_http,
        wait_time=options.get("wait_time_seconds", SQS.Channel.default_wait_time_seconds),
        polling_interval=SQS.Transport.polling_interval if interval is None else interval,
        created_timeout=options.get("visibility_timeout"),
        creation_faults=tuple(creation_faults(options)),
        is_predefined=bool(options.get("predefined_queues")),
    )


def _unusable(app: Any, error: Exception) -> BrokerFacts:
    """Return the facts that follow from an error about the broker's URL."""
    name = type(error).__name__
    if isinstance(error, ImportError):
        scheme = str(app.conf.broker_read_url or app.conf.broker_url).partition(":")[0]
        return BrokerFacts(is_sqs=False, transport=f"{scheme} (no library for it: {name})")
    if isinstance(error, KeyError):
        # kombu's error. Its text names only the part before "://", which contains no keys.
        what = " ".join(str(error.args[0]).split())
        fault = f"broker_url can't be used: {what}: begin it with sqs://"
        return BrokerFacts(is_sqs=False, broken=fault)
    # The error's text may quote a part of the URL, which contains keys.
    hint = (
        "broker_url can't be read: its port must be a number, and keys in it must be "
        "percent-encoded"
    )
    return BrokerFacts(is_sqs=False, broken=f"{hint} ({name})")


def _plain_http(config: BrokerConfig) -> str | None:
    """Return SQS's address if it is on another machine and has no TLS, else None."""
    scheme = "https" if config.use_ssl else "http"
    endpoint = urlsplit(config.endpoint_url or f"{scheme}://sqs.{config.region}.amazonaws.com")
    host = endpoint.hostname
    is_plain = endpoint.scheme == "http" and host is not None and not is_loopback(host)
    return f"http://{host}" if is_plain else None
