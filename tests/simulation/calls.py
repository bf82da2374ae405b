"""Makes a simulated keeper's steps at their times, and carries its calls through the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from celery_sqs_heartbeat.keeper.dispatch import MAX_THREADS, ApplyResults
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import MOST_HANGING, REFUSALS, Call, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from tests.simulation.network import NONE
from tests.simulation.rules import EPSILON, CallRules

if TYPE_CHECKING:
    from tests.simulation.process import KeeperProcess
    from tests.simulation.within import Within

#: The process that a keeper runs in.
Host: TypeAlias = Union["KeeperProcess", "Within"]

#: How often a call is lost whose sender dies.
LOST = 0.3
#: The longest sleep of a keeper. It is woken for anything that is due.
LONG = 1e9


class Rounds:
    """Makes a keeper take its steps while its process lives."""

    def __init__(self, host: Host, keeper: ThreadKeeper) -> None:
        self._worker = host.worker
        self._keeper = keeper
        self._host = host
        self._due: float | None = None

    def make(self) -> None:
        """Take a step now, and schedule the next one for when it is due."""
        due = self._keeper.step()
        self._worker.world.outage.note_stuck(self._keeper, self._host.board)
        if due < LONG / 2 and (self._due is None or due < self._due):
            self._due = due
            # A tiny bit later, because the two clocks add up their times in a different order.
            self._worker.world.clock.at(
                due + self._worker.suspended + EPSILON,
                partial(self._host.run, partial(self._begin, due)),
            )

    def _begin(self, due: float) -> None:
        # Otherwise an earlier one has taken its place.
        if due == self._due:
            self._due = None
            self._host.go_on()


class Threads:
    """Lets calls begin while a thread is free. The others wait their turn.

    Args:
        on_wait: Called when a call has to wait for a thread.
    """

    def __init__(self, on_wait: Callable[[Call], None]) -> None:
        self._on_wait = on_wait
        self._busy: set[int] = set()
        self._waiting: deque[tuple[Call, Callable[[], None]]] = deque()

    def submit(self, call: Call, begin: Callable[[], None]) -> None:
        """Begin a call now, or once a thread is free."""
        self._waiting.append((call, begin))
        self._begin()
        if self._waiting:
            self._on_wait(call)

    def has_begun(self, call: Call) -> bool:
        """Return whether a call has a thread."""
        return call.number in self._busy

    def end(self, call: Call) -> None:
        """Note that a call has returned."""
        self._busy.discard(call.number)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._busy) < MAX_THREADS:
            call, begin = self._waiting.popleft()
            self._busy.add(call.number)
            begin()


class Calls:
    """The dispatcher of a keeper.

    Args:
        rules: The rules for all keepers that its worker has had.
    """

    def __init__(self, host: Host, rules: CallRules) -> None:
        self._worker = host.worker
        self._world = host.worker.world
        self._rules = rules
        self._host = host
        self._given_up: set[Call] = set()
        self._unsent: set[Call] = set()
        self._under_way: dict[Call, float] = {}
        #: Queues that refused their last call. The next call waits for a while.
        self.refused: set[str] = set()
        self._lost: set[Call] = set()
        self._releases: set[str] = set()
        self._threads = Threads(self._note_wait)
        self.sqs = BotoSqs(self._world.refusals)

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        """Carry one of the keeper's calls through the network."""
        world, worker, host = self._world, self._worker, self._host
        host.step()
        self._rules.sent(call, worker.now())
        world.judge.sent(worker, call)
        self._under_way[call] = world.clock()
        self._releases.update(
            entry.receipt_handle for entry in call.entries if entry.action is Action.RELEASE
        )

        def arrive(answer: Callable[[Any], None], is_over: bool) -> None:
            if call in self._lost:
                return
            is_over = is_over or call in self._given_up or not host.is_up
            maker = worker if host.worker_is_up else None
            world.judge.arrives(maker, call, is_over, is_known=host.is_up)
            answer(self.sqs.send(call))
            world.wake_polls()

        def answered(outcomes: list[Outcome]) -> None:
            self._threads.end(call)
            if call not in self._given_up:
                self._end(call, outcomes)
            if REFUSALS & set(outcomes):
                self.refused.add(call.queue_url)
            else:
                self.refused.discard(call.queue_url)
            try:
                settle(outcomes)
            except BaseException:
                # Killed before it had noted the answer, of which its successor does not know.
                world.judge.unanswered(call)
                raise
            world.judge.settled(worker, host.board, call, outcomes)
            if host.worker_is_up:
                world.judge.check_known(worker, call)
            host.go_on()

        def failed() -> None:
            answered([Outcome.UNKNOWN] * len(call.entries))

        lasting = (world.outage, world.holding, world.hangs) if self._may_hang() else ()
        # It stalls for the process that starts, not for the keeper of one that has died.
        starting = (world.starting,) if host.worker_is_up else ()
        sources = (*starting, *lasting)
        hang = next((hang for each in sources if (hang := each.draw(worker.name, call))), NONE)

        def send() -> None:
            self._unsent.discard(call)
            if call in self._given_up:
                # It waited for a thread until then, or for a CPU.
                host.run(failed)
                return
            if worker.now() >= call.send_by:
                host.run(lambda: answered([Outcome.FAILED] * len(call.entries)))
                return
            self._rules.leaves(call, worker.now())
            world.judge.leaves(call)
            world.network.carry(
                f"{call.kind.value}Batch",
                arrive,
                lambda outcomes: host.run(partial(answered, outcomes)),
                lambda: host.run(failed),
                worker.patience,
                hang,
            )

        def begin() -> None:
            if delay := world.delayed.draw(worker.name):
                self._unsent.add(call)
                world.clock.at(world.clock() + delay, lambda: host.run(send))
            else:
                send()

        self._threads.submit(call, begin)
        host.step()

    def give_up(self, call: Call) -> bool:
        """Stop waiting for a call. Its answer is still carried back when it comes."""
        self._given_up.add(call)
        may_be_sent = self._threads.has_begun(call) and call not in self._unsent
        outcome = Outcome.UNKNOWN if may_be_sent else Outcome.FAILED
        self._end(call, [outcome] * len(call.entries))
        self._world.judge.unanswered(call)
        return may_be_sent

    def send_again(self, queue_url: str, content: Mapping[str, Any], **options: Any) -> str:
        """Send a message again, and return the copy's id."""
        self._host.step()
        copy = self.sqs.send_message(queue_url, content, **options)
        self._world.sent_again(self._worker.name, content["MessageBody"], copy)
        return copy

    def close(self) -> None:
        """Nothing to close."""

    def has_tried_to_release(self, receipt_handle: str) -> bool:
        """Return whether a release was sent, or waits for the answer to another call."""
        under_way = {entry.receipt_handle for call in self._under_way for entry in call.entries}
        return receipt_handle in self._releases or receipt_handle in under_way

    def oldest(self) -> float:
        """Return when the oldest call that waits for its answer was sent, or now if none waits."""
        return min(self._under_way.values(), default=self._world.clock())

    def abandon(self) -> None:
        """Note that the process that waited for the calls has died. Some still reach SQS."""
        for call in list(self._under_way):
            if self._world.process_random.random() < LOST:
                self._lost.add(call)
            self._end(call, [Outcome.UNKNOWN] * len(call.entries))
            self._world.judge.unanswered(call)

    def _may_hang(self) -> bool:
        """Return whether another call may hang.

        Nothing replaces a keeper in its worker's process. If it had too many calls that never end,
        their queue would get no more calls for good.
        """
        keeper = self._worker.keeper
        return (
            not isinstance(keeper, ThreadKeeper)
            or keeper.health.hanging + len(self._under_way) < MOST_HANGING
        )

    def _end(self, call: Call, outcomes: list[Outcome]) -> None:
        self._under_way.pop(call, None)
        self._rules.answered(call, outcomes)

    def _note_wait(self, call: Call) -> None:
        """Check a call that waits for a thread. One queue must not take all threads."""
        if call.queue_url == self._world.queues[0].url:
            name = self._worker.name
            self._world.fail(f"a call of {name} waits for a thread, although its queue answers")
