"""A worker and its keeper stay consistent if they hear late, and if either of them dies."""

from __future__ import annotations

import math
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

from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.held_messages import HandedOver
from tests.model.linked import CHANNEL, PLACES, Linked, message_of
from tests.model.machine import STEPS
from tests.model.receiving import TERMS, picks
from tests.model.test_lease_book import CI, EXAMPLES
from tests.support.scale import scaled

Key = tuple[str, str]

QUEUES = ("https://sqs/1/a", "https://sqs/1/b")
#: After these answers, SQS has not executed the call, and never will.
NOT_DONE = frozenset({Outcome.THROTTLED, Outcome.FAILED, Outcome.DENIED, Outcome.NO_QUEUE})
PLENTY = LeaseTerms(visibility_timeout=43_200, threshold=14_400)

outcomes = st.lists(st.sampled_from(Outcome), min_size=1, max_size=10)


class LateMachine(RuleBasedStateMachine):
    """Two processes that hear late from each other. The keeper may die at any moment."""

    @initialize(jitter=st.sampled_from((0.0, 1.0)))
    def begin(self, jitter: float) -> None:
        self.seen: list[Key] = []
        self.handles: list[str] = []
        self.latest: dict[Key, str] = {}
        #: The messages that the worker holds and wants to keep.
        self.held: set[Key] = set()
        self.given_up: set[Key] = set()
        self.finished: set[Key] = set()
        #: Handles by which a release may have been sent, and may have taken effect or still may.
        self.releasing: set[str] = set()
        self.released: set[str] = set()
        #: Handles whose message may be someone else's.
        self.doubtful: set[str] = set()
        #: What the keeper has received and not handed over, and what is on its way to the worker.
        self.waiting: set[Key] = set()
        self.coming: set[Key] = set()
        #: Messages with a release that a dead keeper may have sent, and when its lease ends.
        self.in_doubt: dict[Key, float] = {}
        #: By message: the handle under which the worker got it.
        self.tags: dict[Key, str] = {}
        self.names: set[str] = set()
        self.linked = Linked(jitter, self._check)
        self.linked.worker.on_arrived = self._arrive

    # -- What the worker does ---------------------------------------------------

    # -- What the keeper receives -------------------------------------------------

    @rule(
        queue=st.sampled_from(QUEUES),
        count=st.sampled_from((1, 3, 12)),
        terms=st.sampled_from(TERMS),
    )
    def receive_new(self, queue: str, count: int, terms: LeaseTerms) -> None:
        for _ in range(count):
            self.seen.append((queue, f"m{len(self.seen)}"))
            assert self._receive(self.seen[-1], terms, 0.0) is ReceivedAs.NEW

    @precondition(lambda self: self.seen)
    @rule(pick=picks, terms=st.sampled_from(TERMS), poll=st.sampled_from((0.0, 0.3, 20.0, 70.0)))
    def receive_again(self, pick: int, terms: LeaseTerms, poll: float) -> None:
        key = self.seen[pick % len(self.seen)]
        self.linked.elsewhere.take_leases()
        lease = self._kept().get(key)
        receipt = self._receive(key, terms, poll)
        if poll >= terms.visibility_timeout:
            assert receipt is ReceivedAs.LAPSED
        elif lease is not None and lease.goal is Goal.HOLD:
            assert receipt is ReceivedAs.REDELIVERED
        elif lease is not None and lease.goal is Goal.DELETE:
            assert receipt is ReceivedAs.FINISHED
        elif self.linked.clock() >= self.in_doubt.pop(key, math.inf):
            assert receipt is ReceivedAs.RELEASED, "an earlier keeper may still release it"
        elif key in self.finished and not self.linked.elsewhere.inbox.messages:
            assert receipt in (ReceivedAs.FINISHED, ReceivedAs.RELEASED), "it runs again"
        elif key not in self.finished:
            assert receipt in (ReceivedAs.NEW, ReceivedAs.RELEASED)
        if receipt is ReceivedAs.RELEASED:
            assert any(each.startswith(f"{key[1]}#") for each in self.releasing)

    def _receive(self, key: Key, terms: LeaseTerms, poll: float) -> ReceivedAs:
        self.handles.append(f"{key[1]}#{len(self.handles)}")
        handle = self.handles[-1]
        receipt = self.linked.elsewhere.receive(
            key[0],
            message_of(key[1], handle, len(self.handles)),
            terms,
            terms.visibility_timeout,
            poll,
        )
        if receipt is ReceivedAs.LAPSED and key in self.latest:
            self.doubtful.add(self.latest[key])
        elif receipt in (ReceivedAs.NEW, ReceivedAs.REDELIVERED, ReceivedAs.FINISHED):
            self.latest[key] = handle
            if receipt is ReceivedAs.NEW:
                self.waiting.add(key)
        return receipt

    def _kept(self) -> dict[Key, Lease]:
        return {lease.key: lease for lease in self.linked.elsewhere.keeper.leases()}

    @precondition(lambda self: self.waiting)
    @rule(most=st.sampled_from((1, 2, 1000)))
    def hand_over(self, most: int) -> None:
        for each in self.linked.elsewhere.deliver(most):
            self.waiting.discard(each.lease.key)
            self.coming.add(each.lease.key)

    @rule()
    def tell_what_waits(self) -> None:
        self.linked.elsewhere.keep()

    # -- What the worker does ---------------------------------------------------

    @rule()
    def pull(self) -> None:
        self.linked.worker.pull()

    def _arrive(self, arrived: list[tuple[int, HandedOver]]) -> None:
        for channel, each in arrived:
            assert channel == CHANNEL
            key = each.lease.key
            assert key in self.coming, "it was not handed over, or arrives twice"
            assert key not in self.held, "it runs already"
            self.coming.remove(key)
            self.held.add(key)
            self.tags[key] = each.handle
            held = self.linked.holdings.get(each.handle)
            assert held is not None
            assert held.lease is each.lease
            assert held.name not in self.names
            self.names.add(held.name)

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def done(self, pick: int) -> None:
        self._done(self._handle(pick))

    def _done(self, handle: str) -> None:
        lease = self.linked.worker.find(handle)
        if self.linked.worker.done(handle):
            assert lease is not None
            self.finished.add(lease.key)
            self.held.discard(lease.key)

    @precondition(lambda self: self.handles)
    @rule(pick=picks, delay=st.sampled_from((0, 0.5, 60)))
    def release(self, pick: int, delay: float) -> None:
        lease = self.linked.worker.find(self._handle(pick))
        if self.linked.worker.release(self._handle(pick), delay, "failed"):
            assert lease is not None
            self.held.discard(lease.key)

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def release_what_is_done_all_the_same(self, pick: int) -> None:
        key = sorted(self.held)[pick % len(self.held)]
        self.linked.worker.release(self.tags[key], 0, "worker stops")
        self._done(self.tags[key])

    @precondition(lambda self: self.handles)
    @rule(pick=picks, what=st.sampled_from(("let_expire", "disown")))
    def give_up(self, pick: int, what: str) -> None:
        lease = self.linked.worker.find(self._handle(pick))
        if getattr(self.linked.worker, what)(self._handle(pick)):
            assert lease is not None
            self.held.discard(lease.key)
            self.given_up.add(lease.key)
            assert self.linked.worker.find(self._handle(pick)) is None

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def note_start(self, pick: int) -> None:
        self.linked.worker.note_start(self._handle(pick))

    def _handle(self, pick: int) -> str:
        return self.handles[-1 - pick % len(self.handles)]

    # -- What the link does, and what dies --------------------------------------------

    @rule(most=st.sampled_from((1, 2, 5, 1000)))
    def have_the_keeper_hear(self, most: int) -> None:
        self.linked.elsewhere.take(most)

    @rule(most=st.sampled_from((1, 2, 5, 1000)))
    def have_the_worker_hear(self, most: int) -> None:
        self.linked.hear(most)

    @rule(heard=st.sampled_from((0, 1, 3, 1000)))
    def replace_the_keeper(self, heard: int) -> None:
        dead = self.linked.die(heard)
        # The calls that it had sent may take effect, and no one will know.
        for call, _ in dead.calls.out:
            for entry in call.entries:
                lease = entry.lease
                if entry.action is Action.RELEASE and lease.key not in self.given_up:
                    self.in_doubt[lease.key] = lease.expires_at
        dead.calls.out.clear()
        self.waiting.clear()
        self.linked.start()
        assert not self.coming, "what was handed over is lost"
        for held in self.linked.holdings._by_name.values():
            # What the dead keeper did not report, no one knows.
            self.latest[held.lease.key] = held.lease.receipt_handle

    # -- What time and SQS do -----------------------------------------------------

    @rule(seconds=st.sampled_from(STEPS))
    def wait(self, seconds: float) -> None:
        self.linked.clock.advance(seconds)

    @rule()
    def step(self) -> None:
        self.linked.elsewhere.keeper.step()

    @rule(answer=outcomes)
    def have_the_keeper_do_all_it_knows_of(self, answer: list[Outcome]) -> None:
        self.linked.elsewhere.take()
        self.step()
        while self.linked.elsewhere.calls.out:
            self._answer(0, answer)

    def _check(self, call: Call) -> None:
        """Check a call before it is sent."""
        for entry in call.entries:
            handle, key = entry.receipt_handle, entry.lease.key
            if entry.action is Action.DELETE:
                assert key in self.finished, "it deletes a message whose task has not ended"
            elif entry.action is Action.EXTEND:
                assert handle not in self.released, "an extension follows a release"
            else:
                assert handle not in self.releasing, "it repeats a release"
                assert handle not in self.doubtful, (
                    "it releases a message that may be someone else's"
                )
                self.releasing.add(handle)
                self.released.add(handle)

    @precondition(lambda self: self.linked.elsewhere.calls.out)
    @rule(pick=picks, answer=outcomes)
    def answer(self, pick: int, answer: list[Outcome]) -> None:
        self._answer(pick % len(self.linked.elsewhere.calls.out), answer)

    def _answer(self, index: int, answer: list[Outcome]) -> None:
        calls = self.linked.elsewhere.calls
        call, _ = calls.out[index]
        for entry, outcome in zip(call.entries, (answer * 10)[: len(call.entries)], strict=True):
            is_bad_batch = outcome is Outcome.MALFORMED and len(call.entries) > 1
            if entry.action is Action.RELEASE and (outcome in NOT_DONE or is_bad_batch):
                self.releasing.discard(entry.receipt_handle)
        calls.answer(index, answer)

    # -- Always, and at the end -----------------------------------------------------

    @invariant()
    def the_worker_knows_what_it_holds(self) -> None:
        leases = {each.lease.key: each.lease for each in self.linked.holdings._by_name.values()}
        assert self.held <= leases.keys()
        for key in self.held:
            lease = self.linked.worker.find(self.tags[key])
            assert lease is not None
            assert lease.goal is Goal.HOLD

    @invariant()
    def what_waits_for_its_end_is_counted(self) -> None:
        ending = [
            each
            for each in self.linked.holdings._by_name.values()
            if each.lease.goal is not Goal.HOLD
        ]
        assert self.linked.worker.ending == len(ending)

    @invariant()
    def no_two_have_one_place(self) -> None:
        # The keeper may have given the place of one that has ended to another.
        held = [self.linked.holdings.get(self.tags[key]) for key in self.held]
        places = [each.place for each in held if each is not None and each.place is not None]
        assert len(places) == len(set(places))

    @invariant()
    def the_keeper_keeps_what_the_worker_holds(self) -> None:
        if self.linked.elsewhere.inbox.messages:
            return
        everything = self._kept()
        kept = {key: lease for key, lease in everything.items() if lease.goal is Goal.HOLD}
        assert kept.keys() == self.held | self.waiting | self.coming
        for key, lease in kept.items():
            assert lease.receipt_handle == self.latest[key]
        if self.linked.is_quiet:
            known = {each.lease.key for each in self.linked.holdings._by_name.values()}
            assert known <= everything.keys()

    def teardown(self) -> None:
        """Finish everything. Nothing may be left."""
        if sys.exc_info()[0] is not None or not hasattr(self, "linked"):
            return
        self.hand_over(1000)
        self.pull()
        for index, key in enumerate(sorted(self.held)):
            if index % 2:
                self._done(self.tags[key])
            else:
                self.linked.worker.release(self.tags[key])
                self.held.discard(key)
        for _ in range(20):
            self.linked.deliver()
            self.step()
            while self.linked.elsewhere.calls.out:
                self._answer(0, [Outcome.DONE])
            self.linked.clock.advance(61.0)
        self.linked.deliver()
        self.the_keeper_keeps_what_the_worker_holds()
        assert len(self.linked.worker) == self.linked.worker.ending == 0
        assert not list(self.linked.holdings._by_name.values())
        assert len(self.linked.elsewhere.keeper) == 0
        for number in range(PLACES):
            key = ("https://sqs/1/c", f"last-{number}")
            assert self._receive(key, PLENTY, 0.0) is ReceivedAs.NEW
        assert not self.linked.table.is_short, "a place was not freed"


TestLate = LateMachine.TestCase
TestLate.settings = settings(CI, max_examples=int(EXAMPLES or scaled(150, 500)))
