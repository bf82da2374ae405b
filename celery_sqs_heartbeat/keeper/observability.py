"""What a keeper's process shows of its worker: the journal, the metrics and the status page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.journal import Journal, JournalStats, WorkerInfo, open_journal
from celery_sqs_heartbeat.journal.identity import Identity
from celery_sqs_heartbeat.journal.s3 import new_shipping_client
from celery_sqs_heartbeat.observe.observers import Observer
from celery_sqs_heartbeat.observe.polled import Polled
from celery_sqs_heartbeat.observe.recorder import Recorder
from celery_sqs_heartbeat.observe.watched import Watched
from celery_sqs_heartbeat.sqs.sessions import NewSession

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.metrics import Metrics
    from celery_sqs_heartbeat.observe.status.server import StatusServer


class Observability:
    """Starts and ends what was asked for, around one keeper. Nothing of it may harm a message.

    Args:
        journal: Where it goes; None for none.
        identity: Whose journal it is.
        began_at: When its worker began, in seconds of the keeper's clock; None for now.
        lines: How many lines of it a keeper before this one has begun.
        note_line: Is called with the number of each line that is begun.
        status: `host:port` of the status page; None for none.
        token: For the page's data.
        name: Of the worker.
        new_session: Makes the session of the client that ships the journal; boto3 does without it.
    """

    def __init__(
        self,
        *,
        journal: str | None,
        identity: Mapping[str, Any],
        began_at: float | None,
        lines: int,
        note_line: Callable[[int], None],
        status: str | None,
        token: str | None,
        name: str,
        new_session: NewSession | None = None,
    ) -> None:
        self._journal: Journal | None = None
        self._is_first = lines == 0
        if journal is not None:
            self._journal = open_journal(
                journal,
                identity=Identity(**identity),
                began_at=began_at,
                last=lines,
                note=note_line,
                new_client=partial(new_shipping_client, new_session),
            )
        self._recorder = Recorder() if status else None
        self._metrics = _new_metrics() if status else None
        self._address, self._token, self._name = status, token, name
        self._status: StatusServer | None = None

    @property
    def observers(self) -> Iterator[Observer]:
        """Those that are to be given the keeper's events."""
        chosen = (self._journal, self._recorder, self._metrics)
        return (observer for observer in chosen if observer is not None)

    def note_late(self, seconds: float) -> None:
        """Take in that the keeper was late, or was none for so long."""
        if self._journal is not None:
            self._journal.note_late(seconds)

    def start(self, keeper: Watched, polled: Polled) -> None:
        """Begin with the status page."""
        journal = self.journal_stats if self._journal is not None else None
        if self._metrics is not None:
            self._metrics.watch(keeper, journal, polled)
        if self._address and self._recorder is not None:
            from celery_sqs_heartbeat.observe.status.server import StatusServer

            self._status = StatusServer(
                keeper,
                self._address,
                self._token,
                self._metrics,
                recorder=self._recorder,
                name=self._name,
                polled=polled,
            )
            self._status.start()

    def describe(self, info: WorkerInfo) -> None:
        """Begin the journal with who works here; a keeper before this one may have said it."""
        if self._journal is not None:
            self._journal.start(info, is_first=self._is_first)

    def journal_stats(self) -> JournalStats:
        """Return what has become of the journal's lines."""
        assert self._journal is not None
        return self._journal.stats

    @property
    def has_journal(self) -> bool:
        """Whether there is one."""
        return self._journal is not None

    def close(self, *, has_stopped: bool) -> None:
        """End, when the keeper has: its last events still count.

        Args:
            has_stopped: Whether the worker has come to its end, and was not killed.
        """
        if self._status is not None:
            self._status.stop()
        if self._journal is not None:
            self._journal.close(has_stopped=has_stopped)


def _new_metrics() -> Metrics:
    # Not at the top: without a page nothing needs prometheus_client, a sixth of the time to start.
    from celery_sqs_heartbeat.observe.metrics import Metrics

    return Metrics()
