"""A keeper that is observed, on an SQS that confirms everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.common.journal_facts import JournalStats
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Call, Event, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.observe.metrics import Metrics
from celery_sqs_heartbeat.observe.page_data import PageData
from celery_sqs_heartbeat.observe.status import StatusServer, pages_of, serve
from celery_sqs_heartbeat.observe.watched import PolledQueues
from tests.support.waiting import PATIENCE

QUEUE = "https://sqs.eu-west-1.example/123456789012/orders"
FIFO = f"{QUEUE}.fifo"
TOKEN = "a-long-and-random-text"
LONG = LeaseTerms(visibility_timeout=600, threshold=200)
IN_ORDER = replace(LONG, in_order=True)


class Sqs:
    """Answers calls as `answer` says, DONE to everything unless changed."""

    def __init__(self) -> None:
        self.answer: Callable[[Call], Sequence[Outcome]] = lambda call: (
            [Outcome.DONE] * len(call.entries)
        )

    def send(self, call: Call, may_send: object) -> Sequence[Outcome]:
        return self.answer(call)


class Observed:
    """A keeper with its metrics and a status page on any free port.

    Args:
        before: An observer that gets each event first.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        name: str = "",
        before: Callable[[Event], None] = lambda event: None,
        **keeper: Any,
    ) -> None:
        self.sqs = Sqs()
        self.metrics, self.token = Metrics(), token
        self.data = PageData(self.metrics, name)
        self.keeper = ThreadKeeper(
            self.sqs,
            observers=[before, self.metrics, self.data],
            **{"terms": LONG, **keeper},
        )
        # After a standstill it would be late, and so unhealthy at the first request.
        self.keeper._least_threshold = PATIENCE
        self.polled = PolledQueues()
        self.polled.asked("orders", QUEUE)
        self.metrics.watch(self.keeper, JournalStats, self.polled.view)

    def receive(self, name: str, *, queue: str = QUEUE, count: int = 1, **options: Any) -> str:
        """Begin a lease and return its receipt handle."""
        handle = f"SECRET-{name}-{count}"
        attributes = {"ApproximateReceiveCount": str(count)}
        message = {"MessageId": name, "ReceiptHandle": handle, "Attributes": attributes}
        self.keeper.receive(queue, message, **options)
        return handle

    def receive_in_order(self, group: str, number: int) -> str:
        """Begin a lease on a message of a FIFO queue and return its receipt handle."""
        handle = f"SECRET-{group}-{number}"
        attributes = {"MessageGroupId": group, "SequenceNumber": str(number)}
        message = {"MessageId": f"{group}-{number}", "ReceiptHandle": handle}
        self.keeper.receive(FIFO, {**message, "Attributes": attributes}, terms=IN_ORDER)
        return handle

    def serve(self, address: str = "127.0.0.1:0") -> StatusServer:
        """Serve the page, and return its server."""
        server = serve(address, pages_of(self.data, self.metrics), self.token)
        assert server is not None
        self.server = server
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"


@contextmanager
def observed(**options: Any) -> Iterator[Observed]:
    """Run an observed keeper."""
    scene = Observed(**options)
    scene.keeper.start()
    scene.serve()
    try:
        yield scene
    finally:
        scene.server.stop()
        scene.keeper.stop()
