"""A keeper's process: the real keeper at its end of a simulated link, which also receives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import groupby
from mmap import mmap
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.current.table import LeaseBoard, Record, Table
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import NOT_DELIVERED, WORKER_DIED, Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease
from celery_sqs_heartbeat.link.child import is_unfit
from celery_sqs_heartbeat.link.frames import Message, write
from celery_sqs_heartbeat.link.serving import KeeperEnd, LinkedLeases, is_about_leases
from celery_sqs_heartbeat.receiving.reception import MessageSender
from tests.simulation.calls import LONG, Calls, Rounds
from tests.simulation.link import Line, SimulatedOutlet
from tests.simulation.reception import SimulatedReception, WatchedKeeper
from tests.simulation.rules import EventRules
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.apart import Apart

#: How long a keeper flushes when its worker is gone, in seconds.
FLUSH_SECONDS = 15.0


class Killed(BaseException):
    """The process has died in the middle of its work."""


class KeeperProcess:
    """The process of one keeper, which may die between any two of its steps.

    Args:
        owner: Looks after it, and learns of its end.
        number: Its number among the keepers of its worker, from 1.
        to_worker: The link's direction toward the worker.

    Attributes:
        reads_last_poll: Whether a keeper that ends waits for its open polls.
        board: What its keeper believes.
        given_up: The ids of messages that it lets expire.
        tried: The ids of messages whose release it has sent.
    """

    reads_last_poll = True

    def __init__(self, owner: Apart, number: int, to_worker: Line) -> None:
        worker = self.worker = owner.worker
        self.number = number
        self._owner = owner
        self._world = worker.world
        self._to_worker = to_worker
        self._steps_left: int | None = None
        self._has_aim = False
        self._may_die: Callable[[], bool] = lambda: True
        self._is_hung = False
        self.is_up = self.worker_is_up = True
        self._began_at = self._world.clock()
        self.board = Board()
        #: Leases whose end may not be reported yet.
        self._forgotten: list[Lease] = []
        self.given_up: set[str] = set()
        self._rules = EventRules(self)
        table = FragileTable(owner.memory, self)
        outlet: Any = SimulatedOutlet(self, owner.deliveries)
        leases = LinkedLeases(LeaseBoard(table), outlet, self._send)
        self._known: set[str] = set()
        self.calls = Calls(self, owner.rules)
        self._keeper = ThreadKeeper(
            self.calls.sqs,
            interval=LONG,
            clock=worker.now,
            jitter=worker.world.random.random,
            observers=[self._observe],
            dispatcher=self.calls,
            board=_Boards(self.note_plan, self._forgotten.append, self.board, leases),
        )
        self._rounds = Rounds(self, self._keeper)
        sender = MessageSender(self._keeper, self.calls.send_again, lambda job: job())
        self.is_ending = self._has_read = False
        watched = WatchedKeeper(self, self._keeper)
        self.reception = SimulatedReception(self, watched, sender, leases)
        self._end = KeeperEnd(
            self._keeper,
            leases,
            self._send,
            self.reception,
            wants_all=False,
        )

    @property
    def is_unfit(self) -> bool:
        """Whether its worker must replace it because its calls hang."""
        age = self._world.clock() - self._began_at
        return self.is_up and is_unfit(self._keeper.health.hanging, age)

    # -- Its life ----------------------------------------------------------------------

    def step(self, in_part: Callable[[], None] = lambda: None) -> None:
        """Note that it takes one more step, unless it dies before.

        Args:
            in_part: Does a part of the step, for a process that dies in the middle.
        """
        if not self.is_up:
            raise Killed
        if self._steps_left is not None:
            self._steps_left -= self._has_aim
            if self._steps_left < 0 and self._may_die():
                if self._world.process_random.random() < 0.5:
                    in_part()
                self.kill()
                raise Killed

    def run(self, job: Callable[[], None]) -> None:
        """Run a job now, or once the machine continues; not if the process hangs or has ended."""
        if not self.is_up or self._is_hung:
            return
        if self._world.clock() < self.worker.asleep_until:
            self._world.clock.at(self.worker.asleep_until, lambda: self.run(job))
            return
        with contextlib.suppress(Killed):
            job()

    def go_on(self) -> None:
        """Do what is due. Its worker then looks whether its calls hang."""
        self._rounds.make()
        self._forgotten.clear()
        self.reception.look()
        if self.is_ending:
            self._finish()
        if self.is_unfit:
            self._owner.end_unfit(self)

    def kill_at(self, steps: int, may_die: Callable[[], bool], *, aims_at_release: bool) -> None:
        """Have it die after so many steps, once it may die.

        Args:
            aims_at_release: Count the steps from the next release that it plans.
        """
        self._steps_left, self._may_die = steps, may_die
        self._has_aim = not aims_at_release

    def note_plan(self, lease: Lease) -> None:
        """Note that it is about to show a lease on the board."""
        self._known.update(lease.handles)
        if lease.pending is Action.RELEASE:
            self._has_aim = True

    def hang(self) -> None:
        """Do nothing any more."""
        self._is_hung = True

    def kill(self) -> None:
        """Die now."""
        if self.is_up:
            self.is_up = False
            self.calls.abandon()
            self.reception.abandon()
            for lease in [*self.board.leases(), *self._forgotten]:
                self._world.receives.explain(
                    lease.message_id, self.worker.name, "keeper died", is_guess=True
                )
            if self.worker_is_up:
                self._owner.note_death()

    # -- Messages from its worker ------------------------------------------------------

    def hear(self, messages: list[list[Any]]) -> None:
        """Handle the worker's messages."""
        self.run(partial(self._take, messages))

    def outlive(self, last_words: list[list[Any]]) -> None:
        """Release the messages of a worker that is gone, as `KeeperMain` does."""
        self.run(partial(self._outlive, last_words))

    def knows(self, receipt_handle: str) -> bool:
        """Return whether it has learned of a receive."""
        return receipt_handle in self._known

    def releases_others_first(self, receipt_handle: str) -> bool:
        """Return whether messages behind this one in its group are not released yet."""
        lease = self._keeper.find(receipt_handle)
        return lease is not None and any(
            each.goal is Goal.RELEASE and each is not lease
            for each in self._keeper.leases()
            if each.is_in_order and (each.queue_url, each.group) == (lease.queue_url, lease.group)
        )

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease of a handle, as its keeper knows it."""
        return self._keeper.find(receipt_handle)

    def take_room(self, keeper: int, channel: int, limit: int, prefetch_count: int) -> None:
        """Learn how many messages a channel may get, if that is said to this keeper."""
        if keeper == self.number:
            self.run(partial(self._take_room, channel, limit, prefetch_count))

    def _take_room(self, *room: int) -> None:
        self.reception.allow(*room)
        self.go_on()

    def _take(self, messages: list[list[Any]]) -> None:
        for about_leases, some in groupby(messages, is_about_leases):
            with self._keeper.gathering() if about_leases else contextlib.nullcontext():
                for message in some:
                    self.step()
                    self._take_one(message)
        self.go_on()

    def _take_one(self, message: list[Any]) -> None:
        if message[0] == "stop":
            self._begin_end()
        elif message[0] != "reach" and not self._end.take(message):
            self._world.fail(f"the keeper can't take {message[0]}")

    def _outlive(self, last_words: list[list[Any]]) -> None:
        self._take(last_words)
        self.reception.is_urgent = True
        self.reception.end()
        for lease in self._end.held():
            left = self.reception.poll_left(lease)
            self._keeper.release(lease.receipt_handle, left, WORKER_DIED)
        self._begin_end()
        self.go_on()

    def _begin_end(self) -> None:
        self.is_ending = True
        self.reception.end()

    def _finish(self) -> None:
        """End as `KeeperMain._finish` does, once the last polls are read."""
        if self.reception.is_reading and self.reads_last_poll:
            return
        if not self._has_read:
            self._has_read = True
            for lease in self._end.held():
                if lease.started_at is None:
                    self._keeper.release(lease.receipt_handle, 0, NOT_DELIVERED)
            self._rounds.make()
            if not self.worker_is_up:
                self._world.clock.at(self._world.clock() + FLUSH_SECONDS, self.kill)
        if self.worker_is_up and self.is_up and not self._keeper.ending:
            self.is_up = False
            self.reception.has_finished = True
            self._owner.note_end()

    # -- Messages to its worker --------------------------------------------------------

    def _send(self, message: Message) -> None:
        sent = write(message)
        self.step(lambda: self._to_worker.send(sent[: len(sent) // 2]))
        self._to_worker.send(sent)

    def _observe(self, event: Event) -> None:
        self.step()
        self._rules.note(event)
        if event.kind is EventKind.MESSAGE_LAPSING:
            self.given_up.add(event.message_id)
        self._end.report(event)


class FragileTable(Table):
    """A table of leases whose writer may die in the middle of a record."""

    def __init__(self, memory: mmap, process: KeeperProcess) -> None:
        super().__init__(memory)
        self._bytes = memory
        self._process = process

    def write(self, place: int, key: bytes, record: Record) -> None:
        """Write a record, unless the writer dies before it or halfway through it."""
        self._process.step(partial(self._write_half, place, key, record))
        super().write(place, key, record)

    def _write_half(self, place: int, key: bytes, record: Record) -> None:
        at = self._bytes.find(key)
        if at >= 0:
            written = record.pack(key)
            start = at - written.index(key)
            # Its checksum, and no more.
            self._bytes[start : start + 4] = written[:4]


class _Boards:
    """Passes a book's updates on to several boards, one after the other."""

    def __init__(
        self,
        on_show: Callable[[Lease], None],
        on_remove: Callable[[Lease], None],
        *boards: Board | LinkedLeases,
    ) -> None:
        self._on_show = on_show
        self._on_remove = on_remove
        self._boards = boards

    def show(self, lease: Lease) -> None:
        self._on_show(lease)
        for board in self._boards:
            board.show(lease)

    def remove(self, lease: Lease) -> None:
        self._on_remove(lease)
        for board in self._boards:
            board.remove(lease)
