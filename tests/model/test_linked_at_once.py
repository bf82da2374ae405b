"""If the link delivers each message at once, a keeper elsewhere behaves like a local one."""

from __future__ import annotations

import sys

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.model.linked import Calls, Linked, message_of
from tests.model.machine import STEPS
from tests.model.receiving import TERMS, picks
from tests.model.test_lease_book import CI, EXAMPLES
from tests.support.scale import scaled

QUEUES = ("https://sqs/1/a", "https://sqs/1/b")

outcomes = st.lists(st.sampled_from(Outcome), min_size=1, max_size=10)


class AtOnceMachine(RuleBasedStateMachine):
    """A keeper in this process and one elsewhere. The same happens to both."""

    @initialize(jitter=st.sampled_from((0.0, 1.0)))
    def begin(self, jitter: float) -> None:
        self.linked = Linked(jitter)
        self.calls = Calls()
        self.here = ThreadKeeper(
            self.calls,
            clock=self.linked.clock,
            jitter=lambda: jitter,
            dispatcher=self.calls,
            observers=[],
        )
        self.seen: list[tuple[str, str]] = []
        self.handles: list[str] = []
        #: The handles of the messages that the worker has given up for good.
        self.disowned: set[str] = set()
        #: How many receives there were.
        self.count = 0
        #: The leases of messages that the keeper deletes again, of which the worker hears nothing.
        self.unheard: list[Lease] = []

    # -- What the worker does ---------------------------------------------------

    @rule(
        queue=st.sampled_from(QUEUES),
        count=st.sampled_from((1, 3)),
        terms=st.sampled_from(TERMS),
        hidden=st.sampled_from((None, 5)),
    )
    def receive_new(self, queue: str, count: int, terms: LeaseTerms, hidden: int | None) -> None:
        for _ in range(count):
            self.seen.append((queue, f"m{len(self.seen)}"))
            self._receive(self.seen[-1], terms, hidden, 0.0)

    @precondition(lambda self: self.seen)
    @rule(pick=picks, terms=st.sampled_from(TERMS), poll=st.sampled_from((0.0, 0.3, 70.0)))
    def receive_again(self, pick: int, terms: LeaseTerms, poll: float) -> None:
        self._receive(self.seen[pick % len(self.seen)], terms, None, poll)

    def _receive(
        self, key: tuple[str, str], terms: LeaseTerms, hidden: int | None, poll: float
    ) -> None:
        self.count += 1
        handle = f"{key[1]}#{self.count}"
        message = message_of(key[1], handle, self.count)
        known = self.here.leases()
        hidden = terms.visibility_timeout if hidden is None else hidden
        receipt = self.linked.receive(key[0], message, terms, hidden, poll)
        expected = self.here.receive(
            key[0],
            message,
            terms=terms,
            hidden_for=hidden,
            sent_at=self.linked.clock() - poll,
        )
        assert receipt is expected
        assert receipt in ReceivedAs
        lease = self.here.find(handle)
        if receipt is ReceivedAs.FINISHED and lease is not None and lease not in known:
            self.unheard.append(lease)
        if lease not in self.unheard:
            self.handles.append(handle)
        self.linked.deliver()

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def done(self, pick: int) -> None:
        self._both("done", self._handle(pick))

    @precondition(lambda self: self.handles)
    @rule(pick=picks, delay=st.sampled_from((0, 0.5, 60)))
    def release(self, pick: int, delay: float) -> None:
        self._both("release", self._handle(pick), delay, "failed")

    @precondition(lambda self: self.handles)
    @rule(pick=picks, what=st.sampled_from(("let_expire", "note_start")))
    def change(self, pick: int, what: str) -> None:
        self._both(what, self._handle(pick))

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def disown(self, pick: int) -> None:
        handle = self._handle(pick)
        lease = self.linked.worker.find(handle)
        self.disowned.update(lease.handles if lease is not None else ())
        assert self.linked.worker.disown(handle) == self.here.let_expire(handle)
        self.linked.deliver()

    def _both(self, what: str, *arguments: object) -> None:
        expected = getattr(self.here, what)(*arguments)
        assert getattr(self.linked.worker, what)(*arguments) == expected
        self.linked.deliver()

    def _handle(self, pick: int) -> str:
        return self.handles[-1 - pick % len(self.handles)]

    # -- What time and SQS do -----------------------------------------------------

    @rule(seconds=st.sampled_from(STEPS))
    def wait(self, seconds: float) -> None:
        self.linked.clock.advance(seconds)

    @rule()
    def step(self) -> None:
        due = self.here.step()
        assert self.linked.elsewhere.keeper.step() == due
        self.linked.deliver()
        assert [asks(call) for call, _ in self.linked.elsewhere.calls.out] == [
            asks(call) for call, _ in self.calls.out
        ]

    @precondition(lambda self: self.calls.out)
    @rule(pick=picks, answer=outcomes)
    def answer(self, pick: int, answer: list[Outcome]) -> None:
        index = pick % len(self.calls.out)
        self.calls.answer(index, answer)
        self.linked.elsewhere.calls.answer(index, answer)
        self.linked.deliver()

    # -- Always, and at the end -----------------------------------------------------

    @invariant()
    def both_know_the_same(self) -> None:
        worker, here, there = self.linked.worker, self.here, self.linked.elsewhere.keeper
        assert (len(there), there.ending) == (len(here), here.ending)
        unheard = len([each for each in here.leases() if each in self.unheard])
        assert (len(worker), worker.ending) == (len(here) - unheard, here.ending - unheard)
        for handle in self.handles:
            assert worker.is_disowned(handle) == (handle in self.disowned)
            ours, theirs = worker.find(handle), here.find(handle)
            assert (ours is None) == (theirs is None)
            if ours is None or theirs is None:
                continue
            assert ours.key == theirs.key
            assert ours.receipt_handle == theirs.receipt_handle
            assert ours.handles == theirs.handles
            assert ours.started_at == theirs.started_at
            if theirs.goal is Goal.HOLD and self._has_place(handle):
                assert ours.goal is theirs.goal
                assert ours.expires_at == theirs.expires_at
                assert ours.is_exclusive == theirs.is_exclusive
                assert worker.owns(handle) == here.owns(handle)

    def _has_place(self, handle: str) -> bool:
        holding = self.linked.holdings.get(handle)
        return holding is not None and holding.place is not None

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None or not hasattr(self, "here"):
            return
        for lease in self.here.leases():
            if lease not in self.unheard:
                self._both("done", lease.receipt_handle)
        for _ in range(20):
            self.step()
            while self.calls.out:
                self.answer(0, [Outcome.DONE])
            self.linked.clock.advance(61.0)
            self.both_know_the_same()
        assert len(self.linked.worker) == self.linked.worker.ending == 0
        assert not list(self.linked.holdings._by_name.values())


def asks(call: Call) -> tuple[object, ...]:
    entries = [(each.receipt_handle, each.action, each.timeout) for each in call.entries]
    return call.kind, call.queue_url, call.planned_at, entries


TestAtOnce = AtOnceMachine.TestCase
TestAtOnce.settings = settings(CI, max_examples=int(EXAMPLES or scaled(60, 200)))
