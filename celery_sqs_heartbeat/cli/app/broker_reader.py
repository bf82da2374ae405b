"""Reads an app's broker, and whether kombu can use its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kombu.transport import SQS

from celery_sqs_heartbeat.cli.app.app_facts import BrokerFacts
from celery_sqs_heartbeat.cli.app.offline_broker import Broker
from celery_sqs_heartbeat.settings.address import is_loopback
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.options import creation_faults, option_faults
from celery_sqs_heartbeat.transport import Transport


def read_broker(app: Any) -> BrokerFacts:
    """Return the facts about an app's broker."""
    faults = tuple(option_faults(app.conf.broker_transport_options))
    try:
        connection = app.connection_for_read()
    except Exception as error:
        if not isinstance(app.conf.broker_transport_options, Mapping):
            return BrokerFacts(is_sqs=False, broken_broker="; ".join(faults))
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
        broken_broker=broken,
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
        return BrokerFacts(
            is_sqs=False, broken_broker=f"broker_url can't be used: {what}: begin it with sqs://"
        )
    # The error's text may quote a part of the URL, which contains keys.
    hint = (
        "broker_url can't be read: its port must be a number, and keys in it must be "
        "percent-encoded"
    )
    return BrokerFacts(is_sqs=False, broken_broker=f"{hint} ({name})")


def _plain_http(config: BrokerConfig) -> str | None:
    """Return SQS's address if it is on another machine and has no TLS, else None."""
    scheme = "https" if config.use_ssl else "http"
    endpoint = urlsplit(config.endpoint_url or f"{scheme}://sqs.{config.region}.amazonaws.com")
    host = endpoint.hostname
    is_plain = endpoint.scheme == "http" and host is not None and not is_loopback(host)
    return f"http://{host}" if is_plain else None
