"""Messages arrive: new ones, and redelivered ones."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from tests.model.reported import Reported
from tests.model.truth import Held, Key, World

QUEUES = ("https://sqs/1/a", "https://sqs/1/b")
TERMS = (
    LeaseTerms(visibility_timeout=30, threshold=10),
    LeaseTerms(visibility_timeout=30, threshold=29.9),
    LeaseTerms(visibility_timeout=30, threshold=10, extend=False),
    LeaseTerms(visibility_timeout=30, threshold=10, extend_late=False),
    LeaseTerms(visibility_timeout=30, threshold=10, max_lease=50),
    LeaseTerms(visibility_timeout=1, threshold=0.3),
    LeaseTerms(visibility_timeout=43_200, threshold=14_400, max_lease=43_200),
)

queues = st.sampled_from(QUEUES)
picks = st.integers(0, 40)
#: Seconds from sending a receive to its answer. The last answer was delayed on its way.
polls = st.sampled_from((0.0, 0.3, 20.0, 70.0))


class Receiving(RuleBasedStateMachine):
    """A book and the world side by side. Messages arrive in both."""

    @initialize(jitter=st.sampled_from((0.0, 1.0)))
    def begin(self, jitter: float) -> None:
        self.book = LeaseBook(jitter=lambda: jitter)
        self.world = World()
        self.reported = Reported()
        self.now = 1000.0
        self.seen: list[Key] = []
        self.handles: list[str] = []

    # -- Receiving ------------------------------------------------------------

    @rule(
        queue=queues,
        count=st.sampled_from((1, 3, 12)),
        terms=st.sampled_from(TERMS),
        hidden_for=st.sampled_from((None, 0, 5, 43_200)),
        poll=polls,
    )
    def receive_new(
        self, queue: str, count: int, terms: LeaseTerms, hidden_for: int | None, poll: float
    ) -> None:
        for _ in range(count):
            self.seen.append((queue, f"m{len(self.seen)}"))
            self._receive(self.seen[-1], terms, hidden_for, poll)

    @precondition(lambda self: self.seen)
    @rule(pick=picks, terms=st.sampled_from(TERMS), poll=polls)
    def receive_again(self, pick: int, terms: LeaseTerms, poll: float) -> None:
        self._receive(self.seen[pick % len(self.seen)], terms, None, poll)

    @precondition(lambda self: self.world.held)
    @rule(pick=picks)
    def receive_by_the_same_handle(self, pick: int) -> None:
        held = list(self.world.held.values())[pick % len(self.world.held)]
        # SQS gives each receive a new handle, so this is one answer that is read twice.
        if held.wanted == "hold" and held.handle not in self.world.released:
            self._receive(held.key, held.terms, None, 0.0, handle=held.handle)

    def _receive(
        self,
        key: Key,
        terms: LeaseTerms,
        hidden_for: int | None,
        poll: float,
        handle: str | None = None,
    ) -> None:
        if handle is None:
            handle = f"{key[1]}#{len(self.handles)}"
            self.handles.append(handle)
        hidden = terms.visibility_timeout if hidden_for is None else hidden_for
        held = self.world.held.get(key)
        sent_at, asking = self.now - poll, self.world.asking
        receive = Receive(
            queue_url=key[0],
            message_id=key[1],
            receipt_handle=handle,
            receive_count=len(self.handles),
            hidden_for=hidden,
            sent_at=self.now - poll,
            arrived_at=self.now,
        )
        receipt = self.book.receive(receive, terms=terms)
        if receipt is ReceivedAs.LAPSED:
            assert (hidden or 21) <= poll, "it is certainly ours"
            if held is not None:
                # Received since then, even if only by this late answer: our release would be stale.
                held.is_exclusive = False
                if held.wanted == "release":
                    self.world.forget(key)
            return
        assert poll < (hidden or 21), "it may be someone else's"
        releases = asking.releases(key, handle, sent_at, self.now)
        unspared = [each for each in releases if each.answered_at == math.inf]
        unspared = [each for each in unspared if not each.is_spared]
        if receipt is ReceivedAs.RELEASED:
            assert unspared, "no release can take it away"
            assert held is None or held.wanted == "release", "it runs here"
            for each in unspared:
                each.is_spared = True
            return
        assert not unspared or (held is not None and held.wanted != "release")
        expected = ReceivedAs.REDELIVERED
        if held is None or held.wanted == "release":
            expected = ReceivedAs.NEW
            held = self.world.held[key] = Held(key, terms, held_since=sent_at)
            if key in self.world.finished:
                held.want_deleted(self.now)
        lease = self.book.get(handle)
        assert lease is not None
        held.take(
            handle,
            hidden_for=hidden,
            sent_at=sent_at,
            now=self.now,
            expires_at=lease.expires_at,
            counts_for=asking.limit(key, handle, sent_at),
            is_exclusive=not releases,
        )
        assert receipt is (ReceivedAs.FINISHED if key in self.world.finished else expected)
