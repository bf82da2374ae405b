"""`LinkedKeeper`: what the worker's side does itself, in threads, signal handlers and forks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.client import MAX_WAITING, LinkedKeeper
from celery_sqs_heartbeat.link.frames import Wire
from tests.model.linked import Linked, Queue, message_of
from tests.support.waiting import PATIENCE
from tests.unit.link.pairs import Pair

QUEUE = "https://q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


class Worker(Linked):
    """A worker with its keeper, on a clock that the test moves."""

    def __init__(self) -> None:
        super().__init__(jitter=1.0)

    def get(self, message: str = "m", count: int = 1) -> ReceivedAs:
        return self.receive(QUEUE, message_of(message, f"{message}-{count}", count), TERMS, 30, 0)

    def said(self) -> list[list[Any]]:
        return list(self.elsewhere.inbox.messages)

    def step(self, *outcomes: Outcome) -> list[str]:
        """Deliver all messages, make the calls that are due, and answer them."""
        self.deliver()
        self.elsewhere.keeper.step()
        asked = [e.action.value for call, _ in self.elsewhere.calls.out for e in call.entries]
        while self.elsewhere.calls.out:
            self.elsewhere.calls.answer(0, outcomes or (Outcome.DONE,))
        self.elsewhere.keeper.step()
        self.deliver()
        return asked


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def keeper(worker: Worker) -> LinkedKeeper:
    return worker.worker


def in_child(check: Any) -> bool:
    """Return whether a check holds in a forked child."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_message_is_known_before_its_keeper_learns_of_it(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    assert worker.get() is ReceivedAs.NEW
    assert worker.get(count=2) is ReceivedAs.REDELIVERED
    assert len(keeper) == 1
    assert keeper.owns("m-1")
    assert not keeper.is_lost("m-1")
    lease = keeper.find("m-1")
    assert lease is keeper.find("m-2")
    assert lease is not None
    assert lease.receipt_handle == "m-2"
    assert [each[0] for each in worker.said()] == ["received", "received"]


def test_a_done_message_is_deleted_once_and_finished_from_then_on(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    assert keeper.done("m-1")
    assert keeper.ending == 1
    assert worker.get(count=2) is ReceivedAs.FINISHED
    worker.clock.advance(1.0)
    assert worker.step() == ["delete"]
    assert (len(keeper), keeper.ending) == (0, 0)
    assert worker.get(count=3) is ReceivedAs.FINISHED
    assert worker.step() == ["delete"]
    assert (len(keeper), keeper.ending) == (0, 0)


class Unsent(Queue):
    """A wire that keeps its messages until a `flush`."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[Any]] = []

    @property
    def waiting(self) -> int:
        return len(self.messages)

    def flush(self) -> bool:
        self.sent += self.messages
        self.messages.clear()
        return True

    def kinds(self) -> list[str]:
        kinds = [each[0] for each in self.sent]
        self.sent.clear()
        return kinds


@pytest.fixture
def unsent(worker: Worker, keeper: LinkedKeeper) -> Unsent:
    wire = Unsent()
    keeper.attach(wire, ())
    return wire


def test_starts_are_sent_with_the_next_message(
    worker: Worker, keeper: LinkedKeeper, unsent: Unsent
) -> None:
    worker.get()
    assert unsent.kinds() == ["received"]
    assert keeper.note_start("m-1")
    assert unsent.kinds() == []
    worker.get("n")
    assert unsent.kinds() == ["started", "received"]


def test_starts_are_sent_by_a_push_and_when_there_are_many(
    worker: Worker, keeper: LinkedKeeper, unsent: Unsent
) -> None:
    worker.get()
    unsent.kinds()
    keeper.note_start("m-1")
    keeper.push()
    assert unsent.kinds() == ["started"]
    for _ in range(100):
        keeper.note_start("m-1")
    assert unsent.kinds() == ["started"] * 100


def test_a_released_message_is_new_when_it_is_received_again(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    assert keeper.release("m-1", 0, "failed")
    assert keeper.release("m-1", 0, "failed")
    assert worker.step() == ["release"]
    assert keeper.ending == 0
    assert not keeper.release("m-1")
    assert worker.get(count=2) is ReceivedAs.NEW


def test_a_delay_of_any_numeric_type_is_sent_in_seconds(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    assert keeper.release("m-1", Decimal("1.5"), "failed")  # type: ignore[arg-type]
    assert worker.said()[-1] == ["release", 1, 1, 2, "failed"]


def test_a_message_left_to_expire_is_unknown_at_once(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get("a")
    worker.get("b")
    assert keeper.let_expire("a-1")
    assert keeper.disown("b-1")
    assert [keeper.find(each) for each in ("a-1", "b-1")] == [None, None]
    assert not keeper.is_disowned("a-1")
    assert keeper.is_disowned("b-1")
    assert not keeper.let_expire("a-1")
    worker.deliver()
    assert list(worker.holdings.held_messages()) == []


def test_confirmations_are_read_from_the_table(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get()
    worker.deliver()
    worker.clock.advance(21.0)
    assert worker.step() == ["extend"]
    lease = keeper.find("m-1")
    assert lease is not None
    assert lease.expires_at == worker.clock() + 30
    assert keeper.confirm("m-1", 0)


def test_the_wait_for_a_confirmation_ends_without_one(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get()
    worker.deliver()
    assert not keeper.confirm("m-1", 0.02)
    worker.clock.advance(21.0)
    worker.step(Outcome.LOST)
    assert not keeper.confirm("m-1", 0.02)
    assert not keeper.confirm("unknown", 0.02)


def test_a_message_that_sqs_reports_lost_is_lost_here(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get()
    worker.deliver()
    worker.clock.advance(21.0)
    worker.step(Outcome.LOST)
    assert keeper.is_lost("m-1")
    assert not keeper.owns("m-1")
    (view,) = keeper.snapshot()
    assert view.status == LeaseStatus.LOST


def test_it_is_behind_without_a_ready_keeper_and_with_one_that_does_not_read(
    worker: Worker,
) -> None:
    keeper = worker.worker
    worker.table.tick = 0.0
    assert keeper.is_behind
    worker.table.tick = 1.0
    assert not keeper.is_behind
    keeper.detach()
    assert keeper.is_behind
    assert worker.get() is ReceivedAs.NEW
    pair = Pair()
    keeper.attach(pair.wire, ())
    assert not keeper.is_behind
    pair.fill()
    for number in range(MAX_WAITING):
        keeper.say("tick", number)
    assert keeper.is_behind
    pair.read_all()
    assert not keeper.is_behind
    pair.close()
    assert keeper.is_behind


def test_a_new_keeper_gets_the_leases_and_orders_of_the_worker(worker: Worker) -> None:
    keeper = worker.worker
    keeper.order("reach", "a", 1, about=("a",))
    keeper.order("reach", "b", 1, about=("b",))
    keeper.order("reach", "a", 2, about=("a",))
    keeper.say("tick")
    worker.get("kept")
    keeper.note_start("kept-1", 4711)
    worker.get("done")
    keeper.done("done-1")
    worker.get("dropped")
    keeper.let_expire("dropped-1")
    keeper.detach()
    after = Queue()
    keeper.attach(after, [("hello",), ("gap", 1.0)])  # type: ignore[arg-type]
    said = list(after.messages)
    assert said[:4] == [["hello"], ["gap", 1.0], ["reach", "a", 2], ["reach", "b", 1]]
    assert [(each[0], each[1], each[5], each[7]) for each in said[4:]] == [
        ("resume", 1, 4711, "hold"),
        ("resume", 2, None, "delete"),
    ]
    assert len(list(worker.holdings.held_messages())) == 2


def test_an_order_that_is_not_plain_is_not_sent_to_later_keepers(worker: Worker) -> None:
    with pytest.raises(TypeError):
        worker.worker.order("reach", object())
    after = Queue()
    worker.worker.attach(after, ())  # type: ignore[arg-type]
    assert list(after.messages) == []


def test_an_ack_after_a_release_is_not_lost_with_the_keeper(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    keeper.release("m-1", 0, "worker stops")
    keeper.done("m-1")
    worker.die(0)
    worker.start()
    assert worker.step() == ["delete"]
    assert keeper.ending == 0


def test_calls_that_a_dead_keeper_completed_are_not_repeated(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    """The keeper could not report it, because its worker did not read. The table shows it."""
    worker.get("released")
    keeper.release("released-1", 0, "failed")
    worker.deliver()
    worker.elsewhere.keeper.step()
    worker.elsewhere.calls.answer(0, [Outcome.DONE])
    worker.die(0)
    worker.start()
    assert worker.step() == []
    assert (len(keeper), keeper.ending) == (0, 0)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_release_that_may_have_been_sent_is_not_repeated(
    worker: Worker, keeper: LinkedKeeper, is_full: bool
) -> None:
    for number in range(worker.table.places if is_full else 0):
        worker.get(f"filling-{number}")
    worker.get()
    keeper.release("m-1", 0, "failed")
    worker.deliver()
    worker.elsewhere.keeper.step()
    ((call, _),) = worker.elsewhere.calls.out
    assert [each.action.value for each in call.entries] == ["release"]
    worker.die(0)
    worker.start()
    assert worker.step() == []
    assert keeper.ending == 0


def test_a_release_that_was_not_sent_is_made_by_the_next_keeper(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    keeper.release("m-1", 0, "failed")
    worker.die(0)
    worker.start()
    assert worker.step() == ["release"]
    assert keeper.ending == 0


def test_doubts_about_a_message_survive_the_keeper(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get()
    worker.deliver()
    late = message_of("m", "m-2", 2)
    assert worker.receive(QUEUE, late, TERMS, 30, 40.0) is ReceivedAs.LAPSED
    lease = keeper.find("m-1")
    assert lease is not None
    assert not lease.is_exclusive
    worker.die(0)
    worker.start()
    keeper.release("m-1", 0, "failed")
    assert worker.step() == []
    assert keeper.ending == 0


def test_a_release_in_flight_when_the_lease_lapses_may_still_take_effect(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    """The keeper no longer waits for the release. The worker must not take it for unsent."""
    worker.get()
    keeper.release("m-1", 0, "failed")
    worker.deliver()
    worker.elsewhere.keeper.step()
    assert len(worker.elsewhere.calls.out) == 1
    assert worker.receive(QUEUE, message_of("m", "m-2", 2), TERMS, 30, 40.0) is ReceivedAs.LAPSED
    worker.deliver()
    worker.elsewhere.keeper.step()
    worker.deliver()
    assert keeper.ending == 0
    worker.clock.advance(40.0)
    assert worker.get(count=3) is ReceivedAs.RELEASED
    assert worker.get(count=4) is ReceivedAs.NEW


# -- Threads, handlers, processes ------------------------------------------------------------


def test_threads_may_use_it_at_the_same_time(worker: Worker, keeper: LinkedKeeper) -> None:
    def use(name: str) -> None:
        for number in range(100):
            message = f"{name}{number}"
            assert worker.get(message) is ReceivedAs.NEW
            assert keeper.note_start(f"{message}-1")
            assert keeper.done(f"{message}-1")

    threads = [threading.Thread(target=use, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert keeper.ending == 400
    for _ in range(60):
        worker.clock.advance(1.0)
        worker.step()
    assert (len(keeper), keeper.ending) == (0, 0)


class Interrupting(Queue):
    """A wire on which a signal arrives in the middle of a write."""

    def post(self, message: Any) -> None:
        super().post(message)
        if message[0] == "done":
            signal.raise_signal(signal.SIGUSR1)


@pytest.fixture
def _usr1() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_usr1")
def test_a_signal_handler_is_deferred_until_the_change_is_made(worker: Worker) -> None:
    keeper = worker.worker
    seen: list[Goal] = []

    def handle(*_: Any) -> None:
        if not keeper.defer(lambda: signal.raise_signal(signal.SIGUSR1)):
            lease = keeper.find("b-1")
            assert lease is not None
            seen.append(lease.goal)
            keeper.release("b-1", 0, "worker stops")

    signal.signal(signal.SIGUSR1, handle)
    keeper.attach(Interrupting(), ())  # type: ignore[arg-type]
    worker.get("a")
    worker.get("b")
    assert keeper.done("a-1")
    assert seen == [Goal.HOLD]
    lease = keeper.find("b-1")
    assert lease is not None
    assert lease.goal is Goal.RELEASE


def test_nothing_is_deferred_outside_a_change(keeper: LinkedKeeper) -> None:
    assert not keeper.defer(lambda: None)


def test_in_a_forked_child_every_method_does_nothing(worker: Worker) -> None:
    keeper = worker.worker
    pair = Pair()
    keeper.attach(pair.wire, ())
    worker.get()
    keeper.done("m-1")
    pair.read_all()

    def does_nothing() -> bool:
        assert worker.get("other") is ReceivedAs.NEW
        assert keeper.done("m-1")
        assert keeper.release("m-1")
        assert keeper.note_start("m-1")
        assert keeper.let_expire("m-1")
        assert keeper.disown("m-1")
        assert keeper.confirm("m-1", 0)
        assert keeper.owns("m-1")
        assert not keeper.is_lost("m-1")
        assert not keeper.is_disowned("m-1")
        assert keeper.find("m-1") is None
        assert keeper.snapshot() == ()
        keeper.say("tick")
        keeper.order("pool", [])
        assert not keeper.defer(lambda: None)
        return True

    assert in_child(does_nothing)
    assert pair.read_all() == []
    pair.close()


def test_a_child_that_is_forked_during_a_change_waits_for_no_lock(worker: Worker) -> None:
    """The lock is held by a thread that does not exist in the child."""
    keeper = worker.worker
    pair = Pair()
    is_posting, may_continue = threading.Event(), threading.Event()

    class Held(Wire):
        def post(self, message: Any) -> None:
            is_posting.set()
            may_continue.wait(PATIENCE)

    keeper.attach(Held(os.dup(pair.wire.fileno())), ())
    thread = threading.Thread(target=keeper.say, args=("tick",))
    thread.start()
    assert is_posting.wait(PATIENCE)

    def leave() -> bool:
        keeper.leave_to_parent()
        keeper.order("pool", [])
        return keeper.is_behind and keeper.done("m-1")

    try:
        assert in_child(leave)
        assert not keeper.is_behind
    finally:
        may_continue.set()
        thread.join(PATIENCE)
        keeper.detach()
        pair.close()
