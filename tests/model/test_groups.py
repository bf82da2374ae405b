"""Despite any failure, death or late message, no task begins before those ahead are deleted.

That holds on any worker. No worker releases a message that it runs, and eventually every message
succeeds.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from celery_sqs_heartbeat.testing import FakeClock
from tests.model.linked import Elsewhere
from tests.model.ordered import PLENTY, FifoQueue, Side
from tests.model.test_lease_book import CI, EXAMPLES
from tests.support.scale import scaled

GROUPS = ("a", "b")
WORKERS = st.integers(0, 1)
HOW = st.sampled_from(("done", "done", "done", "failed", "lost", "late", "never"))
#: What may happen to a worker. Actions that lead to starts and failures are frequent.
HAPPENINGS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(GROUPS), st.integers(2, 6)),
    st.tuples(
        st.just("poll"), st.sampled_from((10, 4, 1)), st.sampled_from((0.0, 0.0, 0.0, 5.0, 40.0))
    ),
    st.just(("start",)),
    st.tuples(st.just("end"), st.sampled_from((None, 0.0, 60.0))),
    st.tuples(st.just("hear"), st.integers(0, 10), st.integers(0, 10)),
    st.tuples(st.just("call"), st.lists(HOW, min_size=1, max_size=4)),
    st.tuples(st.just("wait"), st.sampled_from((0.1, 1.0, 7.0, 15.0, 31.0))),
    st.tuples(
        st.just("disturb"),
        st.sampled_from(("connection", "keeper", "worker", "late call", "orphan")),
    ),
)
#: After this many rounds all messages must have succeeded.
ROUNDS = 400


class GroupsMachine(RuleBasedStateMachine):
    """Two workers with keepers on one FIFO queue."""

    @initialize(waiting=st.sampled_from((0, 2, 90)), room=st.sampled_from((PLENTY, PLENTY, 2)))
    def begin(self, waiting: int, room: int) -> None:
        self.clock = FakeClock(1000.0)
        self.queue = FifoQueue(self.clock)
        self.waiting, self.room = waiting, room
        self.sides = [self._new_side() for _ in range(2)]
        self.orphans: list[tuple[Side, Elsewhere]] = []

    def _new_side(self) -> Side:
        return Side(self.queue, self._check, self.waiting, self.room)

    def _check(self, message_id: str) -> None:
        step = self.queue.steps[message_id]
        ahead = self.queue.ahead(message_id)
        assert not ahead, f"{step} begins, but {ahead} are not deleted"

    # -- What happens -----------------------------------------------------------

    # A single rule: Hypothesis leaves out some rules in each run, so few runs would have all.

    @rule(w=WORKERS, happening=HAPPENINGS)
    def happen(self, w: int, happening: tuple[Any, ...]) -> None:
        side = self.sides[w]
        match happening:
            case ("send", group, count):
                for _ in range(count):
                    self.queue.send(group)
            case ("poll", count, latency):
                side.poll(count, latency=latency)
            case ("wait", seconds):
                self.clock.advance(seconds)
            case ("start",):
                side.turn()
                side.start_tasks()
            case ("end", delay) if side.running:
                if delay is None:
                    side.succeed()
                else:
                    side.fail(delay)
            case ("hear", keeper, worker):
                side.take(keeper)
                side.hear(worker)
            case ("call", answers):
                side.elsewhere.keeper.step()
                for how in answers:
                    if side.elsewhere.calls.out:
                        side.answer(side.elsewhere, 0, how)
            case ("disturb", what):
                self._disturb(w, what)

    def _disturb(self, w: int, what: str) -> None:
        side = self.sides[w]
        match what:
            case "connection":
                side.reconnect()
            case "keeper":
                side.die(heard=2)
                side.start()
            case "worker":
                self.orphans.append((side, side.crash()))
                self.sides[w] = self._new_side()
            case "late call" if side.late:
                for entry in side.late.pop(0).entries:
                    side.do(entry)
            case "orphan" if self.orphans:
                side, orphan = self.orphans[0]
                orphan.keeper.step()
                if orphan.calls.out:
                    side.answer(orphan, 0, "done")

    # -- The end -----------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        for _ in range(ROUNDS):
            if not self.queue.queue.messages:
                break
            self._go_round()
        assert not self.queue.queue.messages, [*self.queue.queue.messages.values()]
        assert set(self.queue.succeeded) == set(self.queue.steps.values())

    def _go_round(self) -> None:
        self.orphans = [each for each in self.orphans if len(each[1].keeper)]
        for side, orphan in self.orphans:
            orphan.keeper.step()
            while orphan.calls.out:
                side.answer(orphan, 0, "done")
        for side in self.sides:
            side.poll(10)
            side.turn()
            side.start_tasks()
            while side.running:
                side.succeed()
            side.deliver()
            side.elsewhere.keeper.step()
            while side.elsewhere.calls.out:
                side.answer(side.elsewhere, 0, "done")
            side.elsewhere.keeper.step()
            side.deliver()
        self.clock.advance(1.0)


TestGroups = GroupsMachine.TestCase
TestGroups.settings = settings(CI, max_examples=int(EXAMPLES or scaled(100, 500)))
