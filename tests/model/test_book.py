"""The lease book keeps its promises after anything that Hypothesis does to it.

The faults that this has found are rows of `tests/unit/test_book.py`.
"""

from __future__ import annotations

import itertools
import math
import os
import sys

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import MAX_CALLS, Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from tests.model.checks import check_book, check_call
from tests.model.truth import REFUSED, REFUSED_DELETE_PAUSE, Held, Key, Reported, World
from tests.support.environment import scaled

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
DELAYS = (0, 0.5, 60, 50_000, -1)
many_picks = st.lists(picks, min_size=1, max_size=12, unique=True)
#: Times below and above the shortest pauses, and as long as thresholds, timeouts and limits.
STEPS = (0.01, 0.05, 0.2, 1.0, 5.0, 10.0, 20.0, 30.0, 61.0, 300.0, 14_400.0, 43_200.0, 100_000.0)
#: How many plans in a row may be empty before the book counts as spinning.
IDLE_PLANS = 50
#: Within this many rounds of calls everything that was begun must have ended.
ROUNDS = 10
outcomes = st.lists(st.sampled_from(Outcome), min_size=1, max_size=10)


class BookMachine(RuleBasedStateMachine):
    """A book and the world side by side: receives, owners' decisions, time, calls and answers."""

    @initialize(jitter=st.sampled_from((0.0, 1.0)))
    def begin(self, jitter: float) -> None:
        self.book = LeaseBook(jitter=lambda: jitter)
        self.world = World()
        self.reported = Reported()
        self.now = 1000.0
        self.seen: list[Key] = []
        self.handles: list[str] = []

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

    # -- What the owner of a message decides --------------------------------------------

    @precondition(lambda self: self.handles)
    @rule(chosen=many_picks)
    def done(self, chosen: list[int]) -> None:
        for pick in chosen:
            self._done(self._handle(pick))

    def _done(self, handle: str) -> None:
        held = self.world.owner(handle)
        assert self.book.done(handle, self.now) is (held is not None)
        if held is None:
            return
        self.world.finished.add(held.key)
        releasing = self.world.is_under_way(held, Action.RELEASE)
        if held.wanted == "hold" or (held.wanted == "release" and not releasing):
            held.want_deleted(self.now)

    @precondition(lambda self: self.handles)
    @rule(chosen=many_picks, delay=st.sampled_from(DELAYS))
    def release(self, chosen: list[int], delay: float) -> None:
        for pick in chosen:
            self._release(self._handle(pick), delay)

    def _release(self, handle: str, delay: float) -> None:
        held = self.world.owner(handle)
        late = held is not None and not self._is_worth_a_release(held)
        assert self.book.release(handle, delay, self.now) is (held is not None)
        if held is not None and held.wanted == "hold":
            held.want_released(delay, self.now)
            if late:
                self.world.forget(held.key)

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        held = self.world.owner(self._handle(pick))
        self.reported.take(self.book.take_events())
        assert self.book.let_expire(self._handle(pick), self.now) is (held is not None)
        if held is not None:
            self.world.forget(held.key)
            self.reported.drop(held.key)

    @rule()
    def name_a_handle_that_nobody_has(self) -> None:
        assert not self.book.done("unknown", self.now)
        assert not self.book.release("unknown", 0, self.now)
        assert not self.book.let_expire("unknown", self.now)

    def _handle(self, pick: int) -> str:
        """Return one of all handles that ever existed, the newest first."""
        return self.handles[-1 - pick % len(self.handles)]

    def _is_worth_a_release(self, held: Held) -> bool:
        lease = self.book.get(held.handle)
        assert lease is not None
        return (
            self.now < held.expires_at
            and held.is_exclusive
            and not held.lost
            and lease.status not in (LeaseStatus.LOST, LeaseStatus.REFUSED)
        )

    # -- Time -----------------------------------------------------------------

    @rule(seconds=st.sampled_from(STEPS))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def go_on_to_the_next_call(self) -> None:
        """Go to the time that the book names. A call is due then, or the book names a later one."""
        idle = 0
        while idle < IDLE_PLANS:
            due = self.book.agenda.next_due(self.now)
            if due == math.inf or len(self.world.outstanding) >= MAX_CALLS:
                return
            idle = idle + 1 if due <= self.now else 0
            self.now = max(self.now, due)
            if self._give_up() or self._plan(MAX_CALLS - len(self.world.outstanding)):
                return
        raise AssertionError(f"the book is due at {due}, again and again, and plans nothing")

    @rule(room=st.integers(0, MAX_CALLS))
    def plan(self, room: int) -> None:
        self._plan(min(room, MAX_CALLS - len(self.world.outstanding)))

    def _plan(self, room: int) -> list[Call]:
        calls = self.book.plan(self.now, room)
        assert len(calls) <= room
        late = [
            each
            for each in self.world.held.values()
            if each.wanted == "release" and (self.now >= each.expires_at or not each.is_exclusive)
        ]
        for call in calls:
            check_call(call, self.world, self.now)
            leases = tuple(self.world.held[entry.lease.key] for entry in call.entries)
            self.world.outstanding.append((call, leases))
            self.world.asking.send(call)
            for entry, held in zip(call.entries, leases, strict=True):
                if entry.action is Action.RELEASE:
                    self.world.released.add(entry.receipt_handle)
                elif entry.action is Action.DELETE:
                    held.deletes_sent.add(entry.receipt_handle)
        self._forget_what_the_book_forgot(late)
        return calls

    @precondition(lambda self: self.world.outstanding)
    @rule(pick=picks, answer=outcomes)
    def settle(self, pick: int, answer: list[Outcome]) -> None:
        self._settle(pick % len(self.world.outstanding), answer)

    @precondition(lambda self: self.world.outstanding)
    @rule(outcome=st.sampled_from(Outcome))
    def settle_all(self, outcome: Outcome) -> None:
        self._settle_all(outcome)

    @rule(may_be_sent=st.booleans())
    def give_up(self, may_be_sent: bool) -> None:
        self._give_up(may_be_sent=may_be_sent)

    def _give_up(self, *, may_be_sent: bool = True) -> bool:
        late = [
            pair for pair in self.world.outstanding if self.now >= self.world.waits_until(pair[0])
        ]
        given_up = self.book.give_up(self.now, lambda call: may_be_sent)
        assert given_up == [call for call, _ in late]
        outcome = Outcome.UNKNOWN if may_be_sent else Outcome.FAILED
        for call, leases in late:
            self.world.outstanding.remove((call, leases))
            self.world.given_up.append((call, leases))
            self._take_in(call, leases, [outcome] * len(call.entries))
            if not may_be_sent:
                self.world.unsent.add(call.number)
        return bool(late)

    @precondition(lambda self: self.world.given_up)
    @rule(pick=picks, answer=outcomes)
    def settle_late(self, pick: int, answer: list[Outcome]) -> None:
        call, leases = self.world.given_up.pop(pick % len(self.world.given_up))
        if call.number in self.world.unsent:
            answer = [Outcome.UNKNOWN]
        given = list(itertools.islice(itertools.cycle(answer), len(call.entries)))
        for entry, held, outcome in zip(call.entries, leases, given, strict=True):
            is_known = self.world.held.get(held.key) is held and entry.receipt_handle == held.handle
            if not is_known or outcome is not Outcome.DONE:
                continue
            if entry.lease.status in (LeaseStatus.LOST, LeaseStatus.CAPPED):
                # The book may give up a lease that nothing can save now.
                held.lost = held.lost or entry.lease.status is LeaseStatus.LOST
                held.capped = held.capped or entry.lease.status is LeaseStatus.CAPPED
            counts_for = self._counts_for(call, entry)
            end = held.answered_late(entry.action, call, entry.timeout, self.now, counts_for)
            if end == "ends":
                self.world.forget(held.key)
        self.world.asking.answer(call, given, self.now)
        self.book.apply_results(call, given, self.now)

    def _settle_all(self, outcome: Outcome) -> None:
        while self.world.outstanding:
            self._settle(0, [outcome])

    def _settle(self, index: int, answer: list[Outcome]) -> None:
        call, leases = self.world.outstanding.pop(index)
        given = list(itertools.islice(itertools.cycle(answer), len(call.entries)))
        may_end = self._take_in(call, leases, given)
        self.book.apply_results(call, given, self.now)
        self._forget_what_the_book_forgot(may_end)

    def _take_in(self, call: Call, leases: tuple[Held, ...], given: list[Outcome]) -> list[Held]:
        """Apply an answer to the world. Return what the book may forget because of it."""
        may_end: list[Held] = []
        if call.kind is CallKind.CHANGE_VISIBILITY:
            self.world.refusing.discard(call.queue_url)
            if Outcome.DONE not in given and not set(REFUSED).isdisjoint(given):
                self.world.denied.add(call.queue_url)
                self.world.refusing.add(call.queue_url)
                may_end += [
                    each
                    for each in self.world.held.values()
                    if each.wanted == "release" and each.key[0] == call.queue_url
                ]
        for entry, held, outcome in zip(call.entries, leases, given, strict=True):
            if self.world.held.get(held.key) is not held or entry.receipt_handle != held.handle:
                continue
            counts_for = self._counts_for(call, entry)
            end = held.answered(entry.action, outcome, call, entry.timeout, self.now, counts_for)
            if end == "ends":
                self.world.forget(held.key)
            elif end == "may end":
                may_end.append(held)
        self.world.asking.answer(call, given, self.now)
        return may_end

    def _counts_for(self, call: Call, entry: Entry) -> float:
        if entry.action is not Action.EXTEND:
            return 0.0
        return self.world.asking.counts_for(call, entry.receipt_handle, entry.timeout)

    def _forget_what_the_book_forgot(self, candidates: list[Held]) -> None:
        kept = {lease.key for lease in self.book}
        for each in candidates:
            if each.key not in kept:
                self.world.forget(each.key)

    # -- Always, and at the end -----------------------------------------------------

    @invariant()
    def the_book_is_sound(self) -> None:
        check_book(self.book, self.world, self.handles, self.now)
        self.reported.take(self.book.take_events())
        self.reported.check(self.world.held)

    def teardown(self) -> None:
        """Finish everything. Nothing may be left."""
        if sys.exc_info()[0] is not None or not hasattr(self, "book"):
            return
        for index, held in enumerate(list(self.world.held.values())):
            if index % 2:
                self._release(held.handle, 0)
            else:
                self._done(held.handle)
        for _ in range(ROUNDS):
            self._settle_all(Outcome.DONE)
            self.the_book_is_sound()
            self.go_on_to_the_next_call()
        # The remaining messages wait after a refused delete.
        self.now += REFUSED_DELETE_PAUSE
        for _ in range(ROUNDS):
            self._settle_all(Outcome.DONE)
            self._plan(MAX_CALLS)
            self._settle_all(Outcome.DONE)
            self.the_book_is_sound()
        assert len(self.book) == self.book.ending == 0
        assert self.book.agenda.next_due(self.now) == math.inf


#: `MODEL_EXAMPLES=20000 pytest tests/model` tries more, with other examples each time.
EXAMPLES = os.environ.get("MODEL_EXAMPLES")
CI = settings(
    max_examples=int(EXAMPLES or scaled(100, 1000)),
    stateful_step_count=60,
    derandomize=not EXAMPLES,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLeaseBook = BookMachine.TestCase
TestLeaseBook.settings = CI
