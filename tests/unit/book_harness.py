"""A lease book with short methods for everything that happens to it, for tests."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import Call, CallKind, Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs

QUEUE = "https://sqs/1/q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


class BookHarness:
    """Receives, plans and answers on a clock that the test moves."""

    def __init__(self) -> None:
        self.book = LeaseBook(jitter=lambda: 1.0)
        self.now = 1000.0
        self.events: list[Event] = []

    def receive(
        self,
        message: str,
        *,
        handle: str | None = None,
        queue: str = QUEUE,
        terms: LeaseTerms = TERMS,
        count: int = 1,
        hidden_for: int | None = None,
        poll: float = 0.0,
        group: str | None = None,
        number: int | None = None,
    ) -> ReceivedAs:
        receive = Receive(
            queue_url=queue,
            message_id=message,
            receipt_handle=handle or message,
            receive_count=count,
            hidden_for=terms.visibility_timeout if hidden_for is None else hidden_for,
            sent_at=self.now - poll,
            arrived_at=self.now,
            task="work",
            group=group,
            sequence_number=None if number is None else str(number),
        )
        return self.book.receive(receive, terms=terms)

    def lease(self, handle: str) -> Lease:
        lease = self.book.get(handle)
        assert lease is not None
        return lease

    def plan(self, room: int = 16) -> list[Call]:
        calls = self.book.plan(self.now, room)
        self.events += self.book.take_events()
        return calls

    def one_call(self) -> Call:
        (call,) = self.plan()
        return call

    def apply_results(self, call: Call, *outcomes: Outcome) -> None:
        """Answer a call. A single outcome applies to all entries."""
        answers = outcomes * len(call.entries) if len(outcomes) == 1 else outcomes
        self.book.apply_results(call, answers, self.now)
        self.events += self.book.take_events()

    def refuse_deletes(self, *, until: float) -> None:
        """Refuse the only message's delete until a time, and check that no other call is made."""
        while self.now < until:
            for call in self.plan():
                assert call.kind is CallKind.DELETE, summary(call)
                self.apply_results(call, Outcome.DENIED)
            self.now = self.book.agenda.next_due(self.now)

    def kinds(self) -> list[EventKind]:
        """The events that were reported, except receives."""
        kinds = [event.kind for event in self.events]
        return [kind for kind in kinds if kind is not EventKind.MESSAGE_RECEIVED]


def summary(call: Call) -> list[tuple[str, str, int]]:
    """What a call requests: handle, action, timeout."""
    return [(e.receipt_handle, e.action.value, e.timeout) for e in call.entries]
