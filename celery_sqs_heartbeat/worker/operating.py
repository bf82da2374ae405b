"""What a worker shows of itself: its journal, its metrics and its status page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.journal import JournalStats, WorkerInfo, open_journal
from celery_sqs_heartbeat.keeper.keeper import LeaseKeeper
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.observe.observers import Observer
from celery_sqs_heartbeat.observe.recorder import Recorder
from celery_sqs_heartbeat.observe.status.server import StatusServer
from celery_sqs_heartbeat.settings import PREFIX, Settings
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.compat.versions import running_versions

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.metrics import Metrics
    from celery_sqs_heartbeat.observe.otel import OtelObserver


class Operating:
    """Starts and ends what was set, around one heartbeat. Nothing of it may harm a message.

    Raises:
        ConfigurationError: A setting asks for a library that is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._journal = open_journal(settings.journal) if settings.journal else None
        self._recorder = Recorder() if settings.status else None
        self._metrics = _new_metrics() if settings.status else None
        self._otel = self._new_otel() if settings.otel else None
        self._status: StatusServer | None = None
        self._heartbeat: Heartbeat | None = None

    @property
    def observers(self) -> Iterator[Observer]:
        """Those that are to be told of the keeper's events."""
        chosen = (self._journal, self._recorder, self._metrics, self._otel)
        return (observer for observer in chosen if observer is not None)

    def note_late(self, seconds: float) -> None:
        """Take in that the keeper was late."""
        if self._journal is not None:
            self._journal.note_late(seconds)

    def start(self, heartbeat: Heartbeat, keeper: LeaseKeeper, worker: Any) -> None:
        """Begin, once the pool has forked its first processes."""
        self._heartbeat = heartbeat
        if self._journal is not None:
            self._journal.start(_describe(worker, self._settings))
        journal = self._journal_stats if self._journal is not None else None
        if self._otel is not None:
            self._otel.watch(keeper, journal, heartbeat.polled)
        if self._metrics is not None:
            self._metrics.watch(keeper, journal, heartbeat.polled)
        if self._settings.status and self._recorder is not None:
            self._status = StatusServer(
                keeper,
                self._settings.status,
                self._settings.status_token,
                self._metrics,
                recorder=self._recorder,
                name=worker.hostname,
                polled=heartbeat.polled,
            )
            self._status.start()

    def close(self) -> None:
        """End, when the keeper has: its last events are still told."""
        if self._status is not None:
            self._status.stop()
        if self._journal is not None:
            self._journal.close()

    def _journal_stats(self) -> JournalStats:
        assert self._journal is not None
        return self._journal.stats

    def _new_otel(self) -> OtelObserver:
        if find_spec("opentelemetry") is None:
            raise ConfigurationError(
                [
                    f"{PREFIX}otel=True: needs opentelemetry: install celery-sqs-heartbeat[otel], "
                    "or do not set it"
                ]
            )
        from celery_sqs_heartbeat.observe.otel import OtelObserver

        return OtelObserver(self._traceparent_of)

    def _traceparent_of(self, event: Event) -> str | None:
        if self._heartbeat is None:
            return None
        request: Any = self._heartbeat.requests.get((event.queue_url, event.message_id))
        headers = request.message.headers if request is not None else None
        return headers.get("traceparent") if isinstance(headers, dict) else None


def _new_metrics() -> Metrics:
    # Not at the top: a worker without a status page needs no prometheus_client.
    from celery_sqs_heartbeat.observe.metrics import Metrics

    return Metrics()


def _describe(worker: Any, settings: Settings) -> WorkerInfo:
    said = {
        field.name: repr(value)
        for field in fields(settings)
        if field.repr and (value := getattr(settings, field.name))
    }
    return WorkerInfo(
        node=worker.hostname,
        pool=type(worker.pool).__module__.rpartition(".")[2],
        concurrency=worker.concurrency,
        settings=said,
        versions=running_versions(),
    )
