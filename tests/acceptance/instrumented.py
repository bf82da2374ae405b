"""Reports the errors of a worker's tasks as users do, by Sentry or OpenTelemetry, to a file."""

from __future__ import annotations

from pathlib import Path

import sentry_sdk
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

from tests.support.spans import write_spans


def instrument(tool: str, path: Path) -> None:
    """Make this process, and those that it forks, write a line with the task for each error."""
    if tool == "OpenTelemetry":
        write_spans(path)
        CeleryInstrumentor().instrument()
        return

    class ToFile(Transport):
        def capture_envelope(self, envelope: Envelope) -> None:
            event = envelope.get_event() or {}
            for error in event.get("exception", {}).get("values", ()):
                with path.open("a") as file:
                    file.write(f"{event['transaction']} {error['type']}\n")

    sentry_sdk.init(
        "http://key@127.0.0.1/1",
        integrations=[CeleryIntegration()],
        traces_sample_rate=1.0,
        transport=ToFile,
    )
