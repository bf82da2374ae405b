"""The journal, the metrics and the status page of a worker, in its keeper's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.common.journal_facts import Identity, JournalStats, WorkerInfo
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.shipping import new_shipping_client
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.link.messages import Hello
from celery_sqs_heartbeat.observe.page_data import PageData
from celery_sqs_heartbeat.observe.watched import PolledQueue, Watched
from celery_sqs_heartbeat.sqs.options import NewSession

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.metrics import Metrics
    from celery_sqs_heartbeat.observe.status import StatusServer


class Observability:
    """Starts and stops the configured ones of these for one keeper. None may harm a message.

    Args:
        hello: What the worker wants of them.
        table: Has the number of the last line that a keeper of the worker has begun.
        new_session: Makes the session of the client that ships the journal; boto3 makes its own
            without it.
    """

    def __init__(self, hello: Hello, table: Table, new_session: NewSession | None) -> None:
        self._hello = hello
        self._journal: Journal | None = None
        if hello.journal is not None:
            self._journal = Journal(
                hello.journal,
                identity=Identity(**hello.identity),
                began_at=hello.began_at,
                last=table.sequence,
                note=partial(setattr, table, "sequence"),
                new_client=partial(new_shipping_client, new_session),
            )
        self._page: PageData | None = None
        self._metrics: Metrics | None = None
        if hello.status:
            # Not imported at the top: only the page needs prometheus_client, a sixth of the
            # start-up time.
            from celery_sqs_heartbeat.observe.metrics import Metrics

            self._metrics = Metrics()
            self._page = PageData(self._metrics, hello.name)
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
        address, token = self._hello.status, self._hello.token
        if address and self._page is not None and self._metrics is not None:
            from celery_sqs_heartbeat.observe.status import pages_of, serve

            journal = self._journal
            stats = None if journal is None else lambda: journal.stats
            self._metrics.watch(keeper, stats, polled)
            self._status = serve(address, pages_of(self._page, self._metrics), token)

    def describe(self, info: WorkerInfo) -> None:
        """Begin the journal with a description of the worker, unless an earlier keeper did."""
        if self._journal is not None:
            self._journal.start(info)

    @property
    def journal_stats(self) -> JournalStats | None:
        """The numbers of the journal's lines so far; None without a journal."""
        return self._journal.stats if self._journal is not None else None

    def close(self, *, has_stopped: bool) -> None:
        """Stop the page and close the journal. Call it after the keeper's last events.

        Args:
            has_stopped: Whether the worker has shut down, and was not killed.
        """
        if self._status is not None:
            self._status.stop()
        if self._journal is not None:
            self._journal.close(has_stopped=has_stopped)
