"""A keeper in its own process, which is replaced when it dies, as an `Attendant` does."""

from __future__ import annotations

import random
from functools import partial
from mmap import mmap
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.keeper.thread_keeper import MAX_ENDING
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.link.child import LOOK_SECONDS
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import read_event
from celery_sqs_heartbeat.worker.shutdown import end_polls
from tests.simulation.expectations import expect_releases
from tests.simulation.link import (
    Delivered,
    Deliveries,
    Line,
    LineWire,
    SimulatedChannel,
    SimulatedHeartbeat,
    SimulatedInlet,
)
from tests.simulation.process import KeeperProcess
from tests.simulation.rules import CallRules
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.worker import SimulatedWorker

#: Places in the table: as in a worker's, four times the leases that it holds or may be ending while
#: the calls of a queue hang.
PLACES = 4 * MAX_ENDING
#: How long a message takes over a link that is not slow, in seconds.
QUICK = 0.001
#: The longest times, in seconds: until the worker notices that a keeper is gone, of the pause
#: before the next keeper starts, and of its start.
NOTICE, PAUSE, START = 0.25, 1.0, 1.0
#: The longest time until a keeper sees that its worker is gone and that no process runs its tasks.
ORPHANED = 0.5
#: How often a worker looks whether its queues have changed, in visibility timeouts. A real worker
#: looks every second.
FOLLOW_PART = 0.1
#: Why a lease may run out.
AWAY = "keeper away"


class Apart:
    """Looks after the processes of a worker's keeper, one after another.

    Attributes:
        process: The process that lives, or the last one.
    """

    def __init__(self, worker: SimulatedWorker) -> None:
        self.worker = worker
        self._world = worker.world
        self._random = worker.world.process_random
        self.memory = mmap(-1, Table.size_for(PLACES))
        self._table = Table(self.memory)
        self._holdings = HeldMessages(self._table)
        self._stillborn = 0
        self._slow_until, self._delay = 0.0, QUICK
        seed = f"{worker.name} {worker.life} {self._random.random()}"
        self.deliveries = Deliveries(self, random.Random(seed))
        self.keeper = LinkedKeeper(
            self._holdings, SimulatedInlet(self.deliveries), clock=worker.now
        )
        self._heartbeat = SimulatedHeartbeat(worker, self.keeper)
        self.leased = self._heartbeat.leased
        self.rules = CallRules()
        self._back_at = 0.0
        self._keepers = 0
        self._is_woken = False
        self._is_pushing = self._is_following = self._has_said_stop = self._is_over = False
        self._replace(self._world.clock())
        self._begin(self.process)

    @property
    def board(self) -> Board:
        """What the keeper believes."""
        return self.process.board

    @property
    def is_away(self) -> bool:
        """Whether no keeper hears its worker."""
        return not self.process.is_up or self._world.clock() < self._back_at

    @property
    def is_stuck(self) -> bool:
        """Whether a message waits in the worker that could be delivered."""
        return self.channel.is_stuck

    @property
    def room(self) -> float:
        """For how many more messages its worker has room, beside those that the keeper holds."""
        number = self.channel.feed._number
        receiver = self.process.reception._receivers.get(number)
        if receiver is None:
            return self.channel.room
        intake = receiver.intake
        under_way = intake._handed_over - self.keeper._credit._got[number]
        return self.channel.room - under_way - (intake.free - intake.room)

    @property
    def has_polls(self) -> bool:
        """Whether its keeper has an open poll."""
        return bool(self.process.reception.polls)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease of a handle, as the keeper knows it, or else as the worker does."""
        return self.process.find(receipt_handle) if self.process.is_up else None

    def leases(self) -> list[Lease]:
        """Return the leases of the keeper, and those that the worker holds."""
        return [*self.board.leases(), *self._holdings.leases()]

    def work(self) -> None:
        """Do nothing: the keeper does what is due without a call from the worker."""

    # -- Receiving --------------------------------------------------------------------------

    def open_channel(self) -> None:
        """Have the keeper receive for a new channel."""
        self.channel = SimulatedChannel(self.worker, self._heartbeat, self._wake)
        self.channel.feed.consume()
        if not self._is_following:
            self._follow_later()

    def close_channel(self) -> None:
        """Lose the channel, as `Channel.close` does."""
        self.channel.close()

    def end_receiving(self) -> None:
        """Have the keeper receive no more."""
        end_polls(self._heartbeat)

    def finish(self) -> bool:
        """Stop the keeper of a worker whose tasks have ended. Return whether it has ended."""
        if not self._has_said_stop:
            self._has_said_stop = True
            self.keeper.order("stop", 15.0)
        return self._is_over

    def free(self, delivered: Delivered) -> None:
        """Free the prefetch slot of a message, and say how many there is room for."""
        delivered.channel.qos.ack(delivered.handle)

    def takes_slot(self, delivered: Delivered) -> bool:
        """Return whether a message has a prefetch slot."""
        return delivered.channel.takes_slot(delivered.handle)

    def _follow_later(self) -> None:
        """Tell the keeper what has changed about the queues, where anything may change."""
        world = self._world
        self._is_following = world.attributes.changes or world.starting.is_met
        if self._is_following:
            wait = max(1.0, FOLLOW_PART * world.profile.terms.visibility_timeout)
            follow = partial(self.worker.when_awake, self.keeper, self._follow)
            world.clock.at(world.clock() + wait, follow)

    def _follow(self) -> None:
        if not self.worker.is_stopping:
            self._heartbeat.look()
            self._follow_later()

    def receive(self) -> None:
        """Send what is not urgent, as an `Attendant` does at each look."""
        if not self._is_pushing:
            self._is_pushing = True
            push = partial(self.worker.when_awake, self.keeper, self._push)
            self._world.clock.at(self._world.clock() + LOOK_SECONDS, push)

    def _push(self) -> None:
        self._is_pushing = False
        credit = self.keeper._credit
        if not self.keeper.push() or credit._said != credit._rooms:
            self.receive()

    def _wake(self) -> None:
        self.worker.check_held(self.channel.held)
        if not self._is_woken:
            self._is_woken = True
            clock = self._world.clock
            clock.at(clock(), partial(self.worker.when_awake, self.keeper, self._pull))

    def _pull(self) -> None:
        # It looks for messages after this.
        self._is_woken = True
        self.keeper.pull()
        self._is_woken = False
        self.channel.feed.deliver()
        self.worker.go_on()

    def note_pause(self) -> None:
        """Note that the worker stalls. Its keeper continues, if it has one."""
        if self.is_away:
            for lease in self.leases():
                self._world.truth[lease.message_id].excuses.add(AWAY)

    # -- What disturbs it -------------------------------------------------------------------

    def slow_down(self, delay: float, seconds: float) -> None:
        """Delay every message in both directions for a while."""
        self._delay, self._slow_until = delay, self._world.clock() + seconds

    def kill_at_start(self, keepers: int) -> None:
        """Have the keeper die, and then so many others before their first ticks."""
        self._stillborn = keepers
        self.process.kill()

    def hang(self, seconds: float) -> None:
        """Have the keeper do nothing until it is killed because it hangs."""
        process = self.process
        process.hang()
        self._note_away(seconds)
        self._world.clock.at(self._world.clock() + seconds, process.kill)

    def die(self) -> None:
        """Note that the worker has died. Its keeper releases the messages that the worker held."""
        process, world = self.process, self._world
        process.worker_is_up = False
        self.keeper.detach()
        if not process.is_up:
            return
        if self._random.random() < 0.3:
            self._to_keeper.lose_part(self._random.random())
        if self.is_away:
            world.disturb(self.worker.name, "dies while its keeper starts")
        else:
            ending = {
                each.message_id for each in self._holdings.leases() if each.goal is not Goal.HOLD
            }
            held = [each for each in self.board.leases() if each.message_id not in ending]
            expect_releases(world, self.worker, process, held)
        to_keeper = self._to_keeper
        last_words: list[list[Any]] = []

        def learn() -> None:
            last_words.extend(to_keeper.drain())
            process.outlive(last_words)

        seen_at = max(self._back_at, world.clock()) + self._random.uniform(0, ORPHANED)
        world.clock.at(seen_at, learn)

    def end(self) -> None:
        """Note that the worker ends, after its keeper."""
        if kept := self.board.leases():
            self._world.fail(f"8: the keeper of {self.worker.name} ends with {len(kept)} leases")
        self.process.worker_is_up = False
        self.keeper.detach()

    # -- Inside -----------------------------------------------------------------------------

    def _replace(self, opens_at: float) -> None:
        """Start a process and send it all leases."""
        clock = self._world.clock
        to_worker = Line(clock, self._hear, self.travel)
        self._to_worker = to_worker
        self._table.tick = 0.0
        self._keepers += 1
        self.process = KeeperProcess(self, self._keepers, to_worker)
        self._to_keeper = Line(clock, self.process.hear, self.travel, opens_at)
        self.deliveries.opens_at = opens_at
        self.keeper.attach(LineWire(self._to_keeper), ())
        self._back_at = self._to_keeper.arrives_at

    def _begin(self, process: KeeperProcess) -> None:
        """Have a keeper make its first tick, unless it dies before."""
        if not process.is_up:
            return
        if self._stillborn:
            self._stillborn -= 1
            process.kill()
            return
        self._table.tick = 1.0

    @property
    def is_slow(self) -> bool:
        """Whether the link is slow."""
        return self._world.clock() < self._slow_until

    def travel(self) -> float:
        """Return how long what is sent now takes to the other end, in seconds."""
        return self._delay if self.is_slow else QUICK

    def note_arrival(self) -> None:
        """Note that messages have arrived, which the worker sees once it is awake."""
        self.worker.when_awake(self.keeper, self._pull)

    def _hear(self, messages: list[list[Any]]) -> None:
        self.worker.when_awake(self.keeper, partial(self._listen, messages))

    def _listen(self, messages: list[list[Any]]) -> None:
        self._take(messages)
        self.worker.go_on()

    def _take(self, messages: list[list[Any]]) -> None:
        # A lease is handed over before anything else happens to it.
        self.keeper.pull()
        for message in messages:
            match message:
                case ["event", values]:
                    self.keeper.note_event(read_event(values))
                case _ if not self.keeper.take(message):
                    self._world.fail(f"the worker can't take {message[0]}")

    def _note_away(self, seconds: float = 0.0) -> None:
        """Excuse the leases that run out before another keeper can have extended them."""
        now, worker = self._world.clock(), self.worker
        noticed_at = max(now + seconds + NOTICE, worker.paused_until)
        back_at = noticed_at + self._shorten(PAUSE) + self._shorten(START) + self.travel()
        for lease in self.leases():
            self._excuse(lease, AWAY, back_at)

    def note_end(self) -> None:
        """Note that the keeper has ended because it was stopped."""

        def end() -> None:
            self._take(self._to_worker.drain())
            self._is_over = True
            self.worker.go_on()

        at = self._world.clock() + self._shorten(NOTICE) * self._random.random()
        self._world.clock.at(at, partial(self.worker.when_awake, self.keeper, end))

    def note_death(self) -> None:
        """Note that the keeper has died before its worker."""
        world = self._world
        world.disturb(self.worker.name, "keeper dies")
        # Its successor makes its first calls when they are due.
        world.tally.visibility_bound += len(self.board.leases())
        self._note_away()
        self._to_keeper.lose()
        later = world.clock() + self._shorten(NOTICE) * self._random.random()
        world.clock.at(later, partial(self.worker.when_awake, self.keeper, self._notice))

    def end_unfit(self, process: KeeperProcess) -> None:
        """Kill a keeper whose calls hang, as an `Attendant` does."""

        def end() -> None:
            if process.is_unfit:
                self._world.disturb(self.worker.name, "its keeper is killed because calls hang")
                process.kill()

        self.worker.when_awake(self.keeper, end)

    def _notice(self) -> None:
        """Read the keeper's last events, and start another keeper after a pause."""
        self._take(self._to_worker.drain())
        self.keeper.detach()
        clock = self._world.clock
        later = clock() + self._shorten(PAUSE) * self._random.choice((0.0, 0.5, 1.0))

        def start() -> None:
            opens_at = clock() + self._shorten(START) * self._random.random()
            self._replace(opens_at)
            clock.at(opens_at, partial(begin, self.process))
            self.worker.go_on()

        def begin(process: KeeperProcess) -> None:
            self._begin(process)
            self.worker.when_awake(self.keeper, self.worker.go_on)

        clock.at(later, partial(self.worker.when_awake, self.keeper, start))
        self.worker.go_on()

    def _shorten(self, seconds: float) -> float:
        """Return how long it takes. In a calm world that is too short to cost a lease."""
        profile = self._world.profile
        return min(seconds, profile.terms.threshold / 10) if profile.is_calm else seconds

    def _excuse(self, lease: Lease, excuse: str, known_at: float) -> None:
        """Note that a lease may run out: its keeper can neither extend nor delete it by then."""
        if lease.goal is Goal.RELEASE:
            return
        expires_at = lease.expires_at + self.worker.suspended
        if expires_at < known_at + self._world.profile.call_timeout:
            self._world.truth[lease.message_id].excuses.add(excuse)
