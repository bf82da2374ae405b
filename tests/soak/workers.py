"""When each worker and its keeper could not do their work, and why."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.soak import table
from tests.soak.records import SEND, Harm, Records, WorkerInfo
from tests.soak.table import Cause

#: How long a step that follows at once may take, in seconds.
HASTE = 0.3
#: How long a soft shutdown waits for tasks, in seconds; 0 makes it a cold one.
SOFT_SECONDS = (0, 3)
#: How long a worker in shutdown continues to try deletes, in seconds.
FLUSH_SECONDS = 5.0
#: The longest time until a worker records that it has lost its connection, in seconds.
LOOK_SECONDS = 0.5
#: The kinds of shutdown.
STOPS = ("warm", "soft", "cold")
#: The causes in a machine, by the harm.
MACHINE = {
    "starved": Cause(table.STARVED, "the machine was too busy"),
    "stalled": Cause(table.STALLED, "the machine stalled"),
}
_WAS_STOPPED = Cause(table.STOPPED, "its worker was stopped")
#: The tolerance when an event is compared with a time, in seconds.
_EXACT = 0.1
#: How much longer than promised a standstill may last, in seconds: the driver looks this often.
_DRIVER_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Block:
    """A time in which something could not be done, and why."""

    why: Cause
    start: float
    end: float


def gaps(start: float, end: float, blocks: Iterable[Block]) -> Iterator[tuple[float, float]]:
    """Yield the times between two times that no block covers."""
    for block in sorted(blocks, key=lambda block: block.start):
        if start < min(block.start, end):
            yield start, min(block.start, end)
        start = max(start, block.end)
    if start < end:
        yield start, end


def free(start: float, end: float, blocks: Iterable[Block]) -> float:
    """Return how many seconds between two times no block covers."""
    return sum(until - since for since, until in gaps(start, end, blocks))


def after(at: float, blocks: Iterable[Block]) -> float:
    """Return the first time from `at` on that no block covers."""
    return next((since for since, _ in gaps(at, math.inf, blocks)), math.inf)


def lasting(start: float, seconds: float, blocks: Iterable[Block]) -> float:
    """Return when so many seconds that no block covers have passed since `start`."""
    for since, until in gaps(start, math.inf, blocks):
        if until - since >= seconds:
            return since + seconds
        seconds -= until - since
    return math.inf


def since_when(end: float, seconds: float, blocks: Iterable[Block]) -> float:
    """Return the time from which so many seconds that no block covers lead up to `end`."""
    return -lasting(-end, seconds, [Block(each.why, -each.end, -each.start) for each in blocks])


def longest_overlap(start: float, end: float, blocks: Iterable[Block]) -> Block | None:
    """Return the block that covers most of the time between two times, if any does."""

    def covered(block: Block) -> float:
        return min(end, block.end) - max(start, block.start)

    return max((each for each in blocks if covered(each) > 0), key=covered, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """A time without a keeper.

    Attributes:
        at: When something was done to it.
        died_at: When it died of that, or infinity.
        is_brief: Whether it is so short that only the shortest leases are lost.
        is_for_good: Whether no other keeper follows, because the worker is gone.
    """

    block: Block
    at: float
    died_at: float
    is_brief: bool
    is_for_good: bool

    @property
    def dies(self) -> bool:
        """Whether the keeper died of it."""
        return self.died_at < math.inf


@dataclass(kw_only=True)
class Worker:
    """A worker and what was done to it.

    Attributes:
        blocks: When its keeper could not work.
        halts: The same without the times after a keeper's death: it continued afterwards.
        still: When its main process could not work. It then sends its keeper nothing.
        downs: When it had no keeper, or a stopped one.
        asleep: When it read no results of its pool, apart from its blocks.
        unrepeated: Messages whose release is not tried again, according to its log.
        disconnects: When it lost its connection.
    """

    info: WorkerInfo
    harms: list[Harm] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    halts: list[Block] = field(default_factory=list)
    still: list[Block] = field(default_factory=list)
    downs: list[Down] = field(default_factory=list)
    asleep: list[Block] = field(default_factory=list)
    unrepeated: set[str] = field(default_factory=set)
    disconnects: list[float] = field(default_factory=list)

    def stops(self, until: float, kinds: Iterable[str] = STOPS) -> list[Harm]:
        """Return the shutdowns that were requested before a time."""
        return self.did(kinds, -math.inf, until)

    def did(self, kinds: Iterable[str], since: float, until: float) -> list[Harm]:
        """Return harm of these kinds that began between two times."""
        return [
            harm
            for harm in self.harms
            if harm.what in kinds and since - _EXACT <= harm.at <= until + _EXACT
        ]

    def killed(self, pid: int, since: float, until: float) -> Harm | None:
        """Return the kill of a process of its pool between two times, if there was one."""
        kills = self.did(["pool-kill"], since, until)
        return next((harm for harm in kills if harm.pid == pid), None)

    def lost_connection(self, since: float, until: float) -> bool:
        """Return whether it lost the connection between two times."""
        return any(since - _EXACT <= at <= until + LOOK_SECONDS for at in self.disconnects)

    @property
    def slow(self) -> list[Block]:
        """When its machine was too busy, or stalled."""
        return [block for block in self.still if block.why in MACHINE.values()]

    @property
    def was_killed(self) -> bool:
        """Whether its main process was killed."""
        return bool(self.did(["kill"], -math.inf, self.info.ended))

    @property
    def gone(self) -> Block:
        """The time in which its main process was gone."""
        return Block(Cause(table.KILLED, "its worker was killed"), self.info.ended, math.inf)

    @property
    def end(self) -> Block:
        """The time after its exit in which no call for its messages can be expected.

        If the worker was killed, its keeper continues, and must release the messages in time.
        """
        ended = self.info.ended
        if self.was_killed:
            for down in self.downs:
                if down.is_for_good:
                    why = Cause(table.KILLED, "its worker and its keeper were killed")
                    had_time = down.at >= ended + table.RELEASE_SECONDS
                    return Block(why, down.at if had_time else ended, math.inf)
            return replace(self.gone, end=ended + table.RELEASE_SECONDS)
        stops = self.stops(ended)
        how = f"its worker exited in a {stops[-1].what if stops else 'missing'} shutdown"
        # An exit without a shutdown excuses nothing, and the fleet reports it.
        return Block(Cause(table.CUT_OFF_BY_SHUTDOWN, how), ended if stops else math.inf, math.inf)

    def note_standstills(self, calls: Iterable[float]) -> None:
        """Work out from its harms when it could not work.

        Args:
            calls: When its keepers made calls.
        """
        slow = [Block(MACHINE[each.what], each.at, each.until) for each in self._all(*MACHINE)]
        pauses = [Block(_WAS_STOPPED, each.at, each.until) for each in self._all("pause")]
        self.still = [*pauses, *slow]
        self.downs = [*self._downs(sorted(calls))]
        named = [(down, _named(down.block, pauses)) for down in self.downs]
        self.halts = [*slow, *(block for down, block in named if not down.dies)]
        self.blocks = [*slow, *(block for _, block in named)]
        if self.info.pool == "prefork":
            # A soft shutdown sleeps in the signal handler, and the worker's loop stalls. Only a
            # prefork worker reads results there (celery/worker/worker.py, wait_for_soft_shutdown).
            why = Cause(table.CUT_OFF_BY_SHUTDOWN, "its soft shutdown")
            self.asleep = [
                Block(why, each.at, each.at + max(SOFT_SECONDS)) for each in self._all("soft")
            ]

    def _all(self, *kinds: str) -> list[Harm]:
        return [harm for harm in self.harms if harm.what in kinds]

    def _downs(self, calls: list[float]) -> Iterator[Down]:
        ended = self.info.ended
        # When it could not replace its keeper.
        unable = [*self.still, self.gone] if self.was_killed else self.still
        deaths = 0
        harms = self._all("keeper-kill", "keeper-pause")
        for harm in sorted(harms, key=lambda harm: harm.at):
            is_kill = harm.what == "keeper-kill"
            dies = is_kill or (harm.died and harm.until < ended)
            pause = table.REPLACEMENT_PAUSES[min(deaths, 6)] if dies else 0.0
            deaths += dies
            noticed, died_at = harm.at, harm.at if is_kill else harm.until
            if not is_kill:
                # The worker must replace a keeper that hangs for longer.
                hang = table.START_HANG_SECONDS if harm.as_it_starts else table.HANG_SECONDS
                noticed = lasting(harm.at, hang + _DRIVER_SECONDS, unable)
            until = min(noticed, harm.until)
            if dies:
                until = lasting(noticed, pause + table.REPLACEMENT_SECONDS, unable)
                # A keeper that makes a call is there. A dead one's call may arrive a moment later.
                until = min([until, *(at for at in calls if at > died_at + HASTE)])
            is_for_good = dies and until >= ended
            if is_for_good:
                # The rest is time without a worker.
                until = max(harm.at, ended)
            how = "killed" if is_kill else "stopped"
            yield Down(
                block=Block(Cause(table.KEEPER_DOWN, f"its keeper was {how}"), harm.at, until),
                at=harm.at,
                died_at=died_at if dies else math.inf,
                is_brief=is_kill and pause == 0.0,
                is_for_good=is_for_good,
            )


def read_workers(records: Records) -> Mapping[str, Worker]:
    """Return every worker with its history, by name."""
    workers = {name: Worker(info=info) for name, info in records.workers.items()}
    for harm in records.harms:
        for worker in [workers[harm.worker]] if harm.worker in workers else workers.values():
            worker.harms.append(harm)
    for name, message_id in records.unrepeated:
        workers[name].unrepeated.add(message_id)
    for note in records.notes:
        if note.what == "disconnect":
            workers[note.worker].disconnects.append(note.at)
    calls: dict[str, list[float]] = defaultdict(list)
    for call in records.calls:
        if call.operation != SEND:
            calls[call.worker].append(call.started)
    for name, worker in workers.items():
        worker.note_standstills(calls[name])
    return workers


def _named(down: Block, pauses: list[Block]) -> Block:
    """Return a keeper's standstill as its worker's, if the worker was stopped as well."""
    return replace(down, why=_WAS_STOPPED) if free(down.start, down.end, pauses) < HASTE else down
