"""Reports a worker's spans, and the errors of its tasks, as users do, to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import sentry_sdk
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport


def instrument(tool: str, path: Path) -> None:
    """Make this process, and those that it forks, write a line for each span or error.

    Args:
        tool: "spans": only our own. "OpenTelemetry": those of Celery, too. "Sentry": only errors.
    """
    if tool != "Sentry":
        write_spans(path)
        if tool == "OpenTelemetry":
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


class FileExporter(SpanExporter):
    """Writes a line for each span: its name, its trace, and the errors in it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("a") as file:
            for span in spans:
                errors = [f" {each.attributes['exception.type']}" for each in span.events]
                file.write(f"{span.name} {span.context.trace_id:032x}{''.join(errors)}\n")
        return SpanExportResult.SUCCESS


def write_spans(path: Path) -> None:
    """Make this process write every span to a file."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter(path)))
    trace.set_tracer_provider(provider)
