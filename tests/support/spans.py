"""Writes OpenTelemetry spans to a file, for tests of a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult


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
