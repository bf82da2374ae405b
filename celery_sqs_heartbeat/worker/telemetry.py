"""OpenTelemetry. It runs in the worker's process, where the user sets up its exporters."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.transport.binding import Heartbeat

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.otel import OtelObserver


def require_otel() -> None:
    """Check that OpenTelemetry is installed.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    if find_spec("opentelemetry") is None:
        raise ConfigurationError(
            [
                f"{PREFIX}otel=True: opentelemetry is not installed: install "
                "celery-sqs-heartbeat[otel], or remove the setting"
            ]
        )


def new_otel(heartbeat: Heartbeat) -> OtelObserver:
    """Return an observer that links the spans of a worker's messages to their senders' spans."""
    from celery_sqs_heartbeat.observe.otel import OtelObserver

    def traceparent_of(event: Event) -> str | None:
        request: Any = heartbeat.requests.get((event.queue_url, event.message_id))
        headers = request.message.headers if request is not None else None
        return headers.get("traceparent") if isinstance(headers, dict) else None

    return OtelObserver(traceparent_of)
