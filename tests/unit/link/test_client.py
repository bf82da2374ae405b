"""`LinkedKeeper`: what the worker's side does itself, in threads, signal handlers and forks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome, least_beside
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link import messages
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.frames import Wire
from celery_sqs_heartbeat.link.held_messages import HandedOver
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.support.linked import CHANNEL, Linked, Queue, message_of
from tests.support.waiting import PATIENCE
from tests.unit.link.pairs import Pair

QUEUE = "https://q"
TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


class Worker(Linked):
    """A worker with its keeper, on a clock that the test moves."""

    def __init__(self) -> None:
        super().__init__(jitter=1.0)

    def get(self, message: str = "m", count: int = 1, poll: float = 0.0) -> ReceivedAs:
        """Have the keeper receive a message, and hand it over if it is new."""
        given = message_of(message, f"{message}-{count}", count)
        return self.receive(QUEUE, given, TERMS, 30, poll)

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


def test_a_message_that_arrives_is_known_and_ours(worker: Worker, keeper: LinkedKeeper) -> None:
    arrived: list[tuple[int, HandedOver]] = []
    keeper.on_arrived = arrived.extend
    assert worker.get() is ReceivedAs.NEW
    ((channel, message),) = arrived
    assert (channel, message.queue, message.handle) == (CHANNEL, "q", "m-1")
    assert message.message["MessageId"] == "m"
    assert message.lease is keeper.find("m-1")
    assert message.lease.terms == TERMS
    assert len(keeper) == 1
    assert keeper.owns("m-1")
    assert not keeper.is_lost("m-1")
    assert not keeper.pull()


def test_a_message_that_is_received_again_is_known_by_both_handles(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    assert worker.get(count=2) is ReceivedAs.REDELIVERED
    worker.hear()
    lease = keeper.find("m-1")
    assert lease is keeper.find("m-2")
    assert lease is not None
    assert lease.receipt_handle == "m-2"
    assert len(keeper) == 1


def test_a_message_that_is_received_again_before_it_is_handed_over_can_be_acked(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    """Its task has the handle under which it arrived first, its lease the latest one."""
    first = message_of("m", "m-1", 1)
    worker.elsewhere.receive(QUEUE, first, TERMS, 30, 0.0)
    worker.elsewhere.receive(QUEUE, message_of("m", "m-2", 2), TERMS, 30, 0.0)
    worker.elsewhere.deliver()
    worker.hear()
    assert keeper.owns("m-1")
    assert keeper.find("m-1") is keeper.find("m-2")
    worker.die(0)
    worker.start()
    assert keeper.done("m-1")
    worker.clock.advance(1.0)
    worker.elsewhere.take()
    worker.elsewhere.keeper.step()
    ((call, _),) = worker.elsewhere.calls.out
    assert [each.receipt_handle for each in call.entries] == ["m-2"]


def test_a_done_message_is_deleted_once_and_finished_from_then_on(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    assert keeper.done("m-1")
    assert keeper.ending == 1
    worker.elsewhere.take()
    assert worker.get(count=2) is ReceivedAs.FINISHED
    worker.clock.advance(1.0)
    assert worker.step() == ["delete"]
    assert (len(keeper), keeper.ending) == (0, 0)
    assert worker.get(count=3) is ReceivedAs.FINISHED
    assert worker.step() == ["delete"]
    assert (len(keeper), keeper.ending) == (0, 0)


def test_a_finished_message_is_not_run_under_the_next_keeper(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    keeper.done("m-1")
    worker.clock.advance(1.0)
    assert worker.step() == ["delete"]
    worker.die(0)
    worker.start()
    assert worker.get(count=2) is ReceivedAs.FINISHED
    assert worker.step() == ["delete"]


def test_an_ack_after_a_release_is_known_although_its_lease_has_ended(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    keeper.release("m-1", 0, "worker stops")
    worker.elsewhere.take()
    worker.elsewhere.keeper.step()
    worker.elsewhere.calls.answer(0, [Outcome.DONE])
    keeper.done("m-1")
    worker.deliver()
    assert worker.get(count=2) is ReceivedAs.FINISHED


def test_what_a_dead_keeper_had_not_handed_over_is_released_by_the_next(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.elsewhere.receive(QUEUE, message_of("m", "m-1", 1), TERMS, 30, 0.0)
    worker.elsewhere.keep()
    worker.hear()
    assert len(keeper) == 0
    assert keeper.find("m-1") is None
    worker.die(0)
    worker.start()
    assert worker.step() == ["release"]
    assert keeper.ending == 0


def test_what_a_dead_keeper_had_handed_over_is_held_on(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.elsewhere.receive(QUEUE, message_of("m", "m-1", 1), TERMS, 30, 0.0)
    worker.elsewhere.keep()
    worker.hear()
    worker.elsewhere.deliver()
    worker.die(0)
    worker.start()
    assert len(keeper) == 1
    worker.elsewhere.take()
    worker.clock.advance(21.0)
    assert worker.step() == ["extend"]


# -- Room ------------------------------------------------------------------------------------


class Channel:
    """A channel of a worker, with a prefetch count."""

    def __init__(self, worker: Worker, prefetch_count: int) -> None:
        self.worker = worker
        self.prefetch_count = prefetch_count
        self.held = 0
        worker.worker.on_arrived = self.take
        self.allow()

    def take(self, arrived: list[tuple[int, HandedOver]]) -> None:
        self.held += len(arrived)

    def allow(self) -> None:
        self.worker.worker.allow(
            CHANNEL, lambda: (self.prefetch_count - self.held, self.prefetch_count)
        )

    def end(self, count: int = 1) -> None:
        """Be done with messages, one after the other."""
        for _ in range(count):
            self.held -= 1
            self.allow()

    def give(self, count: int) -> None:
        """Have the keeper hand messages over."""
        elsewhere = self.worker.elsewhere
        for _ in range(count):
            name = f"m{self.worker.clock()}"
            self.worker.clock.advance(0.001)
            elsewhere.receive(QUEUE, message_of(name, name, 1), TERMS, 30, 0.0)
        elsewhere.deliver()

    @property
    def room(self) -> int:
        """How many more messages the keeper may hand over."""
        elsewhere = self.worker.elsewhere
        elsewhere.read_rooms()
        return int(elsewhere.limit - elsewhere.handed_over)


def test_room_is_said_at_once_while_little_is_left(worker: Worker) -> None:
    channel = Channel(worker, 1)
    assert channel.room == 1
    channel.give(1)
    worker.worker.pull()
    assert channel.room == 0
    channel.end()
    assert channel.room == 1


def test_room_is_said_once_it_is_worth_another_poll(worker: Worker, keeper: LinkedKeeper) -> None:
    channel = Channel(worker, 10)
    assert channel.room == 10
    channel.give(4)
    keeper.pull()
    channel.end(2)
    # It waits for the next thing that is said.
    assert channel.room == 6
    keeper.say("tick")
    assert channel.room == 8
    channel.end()
    assert channel.room == 8
    channel.end()
    # The worker has nothing to do.
    assert channel.room == 10
    channel.give(10)
    keeper.pull()
    channel.end(4)
    # The first at once, because there was none, then as many as a poll beside another asks for.
    assert channel.room == 1 + least_beside(10)


def test_room_waits_no_longer_than_for_a_push(worker: Worker, keeper: LinkedKeeper) -> None:
    channel = Channel(worker, 10)
    channel.give(1)
    keeper.pull()
    channel.end()
    keeper.push()
    assert channel.room == 10


def test_less_room_is_said_at_once(worker: Worker, keeper: LinkedKeeper) -> None:
    channel = Channel(worker, 10)
    channel.give(4)
    keeper.pull()
    channel.prefetch_count = 8
    channel.allow()
    assert channel.room == 4


@pytest.mark.parametrize("is_pulled", [False, True])
def test_the_next_keeper_has_the_room_that_is_left(worker: Worker, is_pulled: bool) -> None:
    channel = Channel(worker, 10)
    channel.give(7)
    if is_pulled:
        worker.worker.pull()
        channel.end(2)
    worker.die(0)
    worker.start()
    assert channel.room == 10 - channel.held
    channel.allow()
    worker.worker.push()
    assert channel.held == (5 if is_pulled else 7)
    assert channel.room == 10 - channel.held
    channel.give(channel.room)
    worker.worker.pull()
    assert channel.held == 10
    channel.end(10)
    worker.worker.push()
    assert channel.room == 10


def test_what_was_not_handed_over_takes_no_room_from_the_next_keeper(worker: Worker) -> None:
    channel = Channel(worker, 3)
    for name in "abc":
        worker.elsewhere.receive(QUEUE, message_of(name, name, 1), TERMS, 30, 0.0)
    worker.elsewhere.keep()
    worker.hear()
    worker.die(0)
    worker.start()
    assert channel.room == 3


def test_a_closed_channel_has_no_room_with_the_next_keeper(worker: Worker) -> None:
    channel = Channel(worker, 3)
    worker.worker.close(CHANNEL)
    worker.die(0)
    worker.start()
    assert channel.room == 0


# -- Orders ----------------------------------------------------------------------------------


class Unsent(Queue):
    """A wire that keeps its messages until a `flush`."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[Any]] = []

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
    assert keeper.note_start("m-1")
    assert unsent.kinds() == []
    keeper.done("m-1")
    assert unsent.kinds() == ["started", "done"]


def test_starts_are_sent_by_a_push(worker: Worker, keeper: LinkedKeeper, unsent: Unsent) -> None:
    worker.get()
    keeper.note_start("m-1")
    keeper.push()
    assert unsent.kinds() == ["started"]


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
    assert worker.said()[-1] == ["release", "m-1", 2, "failed"]


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
    assert list(worker.holdings._by_name.values()) == []


def test_confirmations_are_read_from_the_table(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get()
    worker.deliver()
    worker.clock.advance(21.0)
    assert worker.step() == ["extend"]
    lease = keeper.find("m-1")
    assert lease is not None
    assert lease.expires_at == worker.clock() + 30


def test_a_message_that_sqs_reports_lost_is_lost_here(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get()
    worker.deliver()
    worker.clock.advance(21.0)
    worker.step(Outcome.LOST)
    assert keeper.is_lost("m-1")
    assert not keeper.owns("m-1")
    (view,) = keeper.snapshot()
    assert view.status == LeaseStatus.LOST


def test_a_new_keeper_gets_the_leases_and_orders_of_the_worker(worker: Worker) -> None:
    keeper = worker.worker
    keeper.order("reach", "a", 1)
    keeper.order("reach", "b", 1)
    keeper.order("reach", "a", 2)
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
    assert said[4] == ["finished", [[QUEUE, "done"]]]
    leases = [messages.read_lease(each[-1]) for each in said[5:]]
    assert [(each[0], *each[2:4]) for each in said[5:]] == [
        ("resume", 4711, "hold"),
        ("resume", None, "delete"),
    ]
    assert [each.receipt_handle for each in leases] == ["kept-1", "done-1"]
    assert len(worker.holdings._by_name) == 2


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


def test_after_a_release_was_tried_no_keeper_extends_its_message(
    worker: Worker, keeper: LinkedKeeper
) -> None:
    worker.get()
    keeper.release("m-1", 0, "failed")
    worker.step(Outcome.THROTTLED)
    keeper.done("m-1")
    worker.die(0)
    worker.start()
    for _ in range(40):
        assert "extend" not in worker.step(Outcome.FAILED)
        worker.clock.advance(0.7)


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


@pytest.mark.parametrize(("seconds", "receipt"), [(20, ReceivedAs.NEW), (40, ReceivedAs.RELEASED)])
@pytest.mark.parametrize("is_answered", [False, True])
def test_the_next_keeper_knows_that_only_a_release_makes_a_message_visible_so_early(
    worker: Worker, keeper: LinkedKeeper, is_answered: bool, seconds: float, receipt: ReceivedAs
) -> None:
    worker.get()
    keeper.release("m-1", 0, "failed")
    worker.deliver()
    worker.elsewhere.keeper.step()
    if is_answered:
        worker.elsewhere.calls.answer(0, [Outcome.UNKNOWN])
        worker.elsewhere.keeper.step()
        worker.deliver()
    worker.die(0)
    worker.start()
    worker.step()
    worker.clock.advance(seconds)
    assert worker.get(count=2) is receipt


@pytest.mark.parametrize("is_known", [False, True])
def test_a_release_that_was_not_sent_is_made_by_the_next_keeper(
    worker: Worker, keeper: LinkedKeeper, is_known: bool
) -> None:
    worker.get()
    keeper.release("m-1", 0, "failed")
    if is_known:
        worker.deliver()
    worker.die(0)
    worker.start()
    assert worker.step() == ["release"]
    assert keeper.ending == 0


def test_a_new_keeper_receives_what_is_consumed_by_then(worker: Worker) -> None:
    keeper = worker.worker
    a, b, c = (
        ConsumedQueue(name=name, url=name, lease_url=name, terms=TERMS) for name in ("a", "b", "c")
    )
    keeper.consume(1, [a, b])
    keeper.consume(2, [c])
    keeper.follow(1, replace(a, wait=7))
    keeper.follow(1, replace(a, wait=7))
    keeper.cancel(1, "b")
    keeper.follow(1, replace(b, wait=7))
    keeper.close(2)
    kinds = [each[0] for each in worker.said()]
    assert kinds == ["consume", "consume", "consume", "cancel", "close"]
    worker.get()
    after = Queue()
    keeper.attach(after, ())  # type: ignore[arg-type]
    # After the leases.
    resume, consume = after.messages
    assert (resume[0], consume[:2]) == ("resume", ["consume", 1])
    (queue,) = map(messages.read_queue, consume[2])
    assert (queue.name, queue.wait) == ("a", 7)
    keeper.end_receiving()
    ended = Queue()
    keeper.attach(ended, ())  # type: ignore[arg-type]
    assert [each[0] for each in ended.messages] == ["resume", "end"]


def test_doubts_about_a_message_survive_the_keeper(worker: Worker, keeper: LinkedKeeper) -> None:
    worker.get()
    assert worker.get(count=2, poll=40.0) is ReceivedAs.LAPSED
    lease = keeper.find("m-1")
    assert lease is not None
    assert not lease.is_exclusive
    worker.die(0)
    worker.start()
    keeper.release("m-1", 0, "failed")
    assert worker.step() == []
    assert keeper.ending == 0


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_release_in_flight_when_the_lease_lapses_may_still_take_effect(
    worker: Worker, keeper: LinkedKeeper, deaths: int
) -> None:
    """The keeper no longer waits for the release. No later one must take it for unsent."""
    worker.get()
    keeper.release("m-1", 0, "failed")
    worker.deliver()
    worker.elsewhere.keeper.step()
    assert len(worker.elsewhere.calls.out) == 1
    assert worker.get(count=2, poll=40.0) is ReceivedAs.LAPSED
    worker.elsewhere.keeper.step()
    worker.deliver()
    assert keeper.ending == 0
    for _ in range(deaths):
        worker.die(0)
        worker.start()
    worker.clock.advance(40.0)
    assert worker.get(count=3) is ReceivedAs.RELEASED
    assert worker.get(count=4) is ReceivedAs.NEW


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_a_release_in_flight_at_its_keepers_death_may_still_take_effect(
    worker: Worker, keeper: LinkedKeeper, deaths: int
) -> None:
    worker.get()
    keeper.release("m-1", 0, "failed")
    worker.deliver()
    worker.elsewhere.keeper.step()
    for _ in range(deaths):
        worker.die(0)
        worker.start()
        worker.deliver()
    worker.clock.advance(40.0)
    assert worker.get(count=3) is ReceivedAs.RELEASED
    assert worker.get(count=4) is ReceivedAs.NEW


# -- Threads, handlers, processes ------------------------------------------------------------


def test_threads_may_use_it_at_the_same_time(worker: Worker, keeper: LinkedKeeper) -> None:
    def use(name: str) -> None:
        for number in range(100):
            message = f"{name}{number}"
            assert keeper.note_start(f"{message}-1")
            assert keeper.done(f"{message}-1")

    for name in "abcd":
        for number in range(100):
            worker.get(f"{name}{number}")
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
    worker.elsewhere.receive(QUEUE, message_of("other", "other-1", 1), TERMS, 30, 0.0)
    worker.elsewhere.deliver()

    def does_nothing() -> bool:
        # As the attendant has every forked child do.
        keeper.leave_to_parent()
        assert not keeper.pull()
        assert not keeper.done("m-1")
        assert not keeper.release("m-1")
        assert not keeper.note_start("m-1")
        assert not keeper.let_expire("m-1")
        assert not keeper.disown("m-1")
        keeper.allow(CHANNEL, lambda: (1, 1))
        keeper.cancel(CHANNEL, "q")
        keeper.close(CHANNEL)
        keeper.end_receiving()
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
    assert keeper.pull()
    worker.elsewhere.read_rooms()
    assert worker.elsewhere.limit == 0
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
        return keeper.fileno() == -1 and not keeper.done("m-1")

    try:
        assert in_child(leave)
        assert keeper.fileno() >= 0
    finally:
        may_continue.set()
        thread.join(PATIENCE)
        keeper.detach()
        pair.close()
