"""The journal, the metrics and the status page of a worker, in its keeper's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.common.journal_facts import Identity, JournalStats, WorkerInfo
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.shipping import new_shipping_client
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.observe.page_data import PageData
from celery_sqs_heartbeat.observe.watched import PolledQueue, Watched
from celery_sqs_heartbeat.sqs.options import NewSession

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.metrics import Metrics
    from celery_sqs_heartbeat.observe.status import StatusServer


class Observability:
    """Starts and stops the configured ones of these for one keeper. None may harm a message.

    Args:
        journal: Where to write the journal; None for no journal.
        identity: The worker's identity, for the journal.
        began_at: When its worker began, in seconds of the keeper's clock; None for now.
        lines: How many lines of the journal an earlier keeper has begun.
        note_line: Called with the number of each new line.
        status: `host:port` of the status page; None for no page.
        token: The token that the page's data requires.
        name: The worker's name.
        new_session: Makes the session of the client that ships the journal; boto3 makes its own
            without it.
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
        if journal is not None:
            self._journal = Journal(
                journal,
                identity=Identity(**identity),
                began_at=began_at,
                last=lines,
                note=note_line,
                new_client=partial(new_shipping_client, new_session),
            )
        self._page: PageData | None = None
        self._metrics: Metrics | None = None
        if status:
            # Not imported at the top: only the page needs prometheus_client, a sixth of the
            # start-up time.
            from celery_sqs_heartbeat.observe.metrics import Metrics

            self._metrics = Metrics()
            self._page = PageData(self._metrics, name)
        self._address, self._token = status, token
        self._status: StatusServer | None = None

    @property
    def observers(self) -> Iterator[Callable[[Event], None]]:
        """The observers of the keeper's events.

        The log comes after them: what it says, the page and the metrics show already.
        """
        chosen = (self._journal, self._metrics, self._page)
        return (observer for observer in chosen if observer is not None)

    def note_late(self, seconds: float) -> None:
        """Note that the keeper was late, or that there was no keeper, for this many seconds."""
        if self._journal is not None:
            self._journal.note_late(seconds)

    def start(self, keeper: Watched, polled: Callable[[], Sequence[PolledQueue]]) -> None:
        """Start the status page."""
        if self._address and self._page is not None and self._metrics is not None:
            from celery_sqs_heartbeat.observe.status import pages_of, serve

            journal = self.journal_stats if self._journal is not None else None
            self._metrics.watch(keeper, journal, polled)
            self._status = serve(self._address, pages_of(self._page, self._metrics), self._token)

    def describe(self, info: WorkerInfo) -> None:
        """Begin the journal with a description of the worker, unless an earlier keeper did."""
        if self._journal is not None:
            self._journal.start(info)

    def journal_stats(self) -> JournalStats:
        """Return the numbers of the journal's lines so far."""
        assert self._journal is not None
        return self._journal.stats

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal."""
        return self._journal is not None

    def close(self, *, has_stopped: bool) -> None:
        """Stop the page and close the journal. Call it after the keeper's last events.

        Args:
            has_stopped: Whether the worker has shut down, and was not killed.
        """
        if self._status is not None:
            self._status.stop()
        if self._journal is not None:
            self._journal.close(has_stopped=has_stopped)
