"""When each worker could not do its work, and why."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.soak.blocks import Block, free
from tests.soak.delays import RELEASE_SECONDS
from tests.soak.delivery import HASTE
from tests.soak.downs import Down, read_downs
from tests.soak.model import SEND, Harm, Records, WorkerInfo
from tests.soak.settings import SOFT_SECONDS
from tests.soak.table import BROKEN, CUT_OFF_BY_SHUTDOWN, KILLED, STALLED, STARVED, STOPPED, Cause

#: The kinds of shutdown.
STOPS = ("warm", "soft", "cold")
#: The causes in a machine, by the harm.
MACHINE = {
    "starved": Cause(STARVED, "the machine was too busy"),
    "stalled": Cause(STALLED, "the machine stalled"),
}
#: The tolerance when an event is compared with a time, in seconds.
_EXACT = 0.1
#: The longest time until a worker records that it has lost its connection, in seconds.
LOOK_SECONDS = 0.5


@dataclass(kw_only=True)
class WorkerHistory:
    """A worker and what was done to it.

    Attributes:
        blocks: When its keeper could not work.
        halts: The same without the times after a keeper's death: it continued afterwards.
        still: When its main process could not work. It then sends its keeper nothing.
        downs: When it had no keeper, or a stopped one.
        asleep: When it read no results of its pool, apart from its blocks.
        unrepeated: Messages whose release is not tried again, according to its log.
        disconnects: When it lost its connection.
        lost_of_batches: When it held messages of batches that it lost before the batch started,
            with their ids.
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
    lost_of_batches: list[tuple[str, Block]] = field(default_factory=list)

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
        why = Cause(KILLED, "its worker was killed")
        return Block(why=why, start=self.info.ended, end=math.inf)

    @property
    def end(self) -> Block:
        """The time after its exit in which no call for its messages can be expected.

        If the worker was killed, its keeper continues, and must release the messages in time.
        """
        if self.was_killed:
            for down in self.downs:
                if down.is_for_good:
                    why = Cause(KILLED, "its worker and its keeper were killed")
                    had_time = down.harm.at >= self.info.ended + RELEASE_SECONDS
                    start = down.harm.at if had_time else self.info.ended
                    return Block(why=why, start=start, end=math.inf)
            end = self.info.ended + RELEASE_SECONDS
            return Block(why=self.gone.why, start=self.info.ended, end=end)
        if stops := self.stops(self.info.ended):
            how = f"its worker exited in a {stops[-1].what} shutdown"
            why = Cause(CUT_OFF_BY_SHUTDOWN, how)
        else:
            # Only a worker whose pool is broken may do so: the fleet reports any other.
            why = Cause(BROKEN, "its worker exited without a shutdown")
        return Block(why=why, start=self.info.ended, end=math.inf)


def read_histories(records: Records) -> dict[str, WorkerHistory]:
    """Return the history of every worker, by name."""
    histories = {name: WorkerHistory(info=info) for name, info in records.workers.items()}
    for harm in records.harms:
        concerned = [histories[harm.worker]] if harm.worker in histories else histories.values()
        for history in concerned:
            history.harms.append(harm)
            if harm.what == "pause":
                why = Cause(STOPPED, "its worker was stopped")
                history.still.append(Block(why=why, start=harm.at, end=harm.until))
            elif harm.what in MACHINE:
                slow = Block(why=MACHINE[harm.what], start=harm.at, end=harm.until)
                history.still.append(slow)
                history.blocks.append(slow)
    for worker, message_id in records.unrepeated:
        histories[worker].unrepeated.add(message_id)
    for note in records.notes:
        if note.what == "disconnect":
            histories[note.worker].disconnects.append(note.at)
    keeper_calls: dict[str, list[float]] = defaultdict(list)
    for call in records.calls:
        if call.operation != SEND:
            keeper_calls[call.worker].append(call.started)
    for history in histories.values():
        unable = [*history.still, history.gone] if history.was_killed else history.still
        calls = keeper_calls[history.info.name]
        history.downs = read_downs(history.harms, unable, history.info.ended, calls)
        pauses = [block for block in history.still if block.why.row is STOPPED]
        history.halts = [
            *history.blocks,
            *(_named(down.block, pauses) for down in history.downs if not down.dies),
        ]
        history.blocks += [_named(down.block, pauses) for down in history.downs]
        history.asleep = [*_asleep(history)]
    return histories


def _named(down: Block, pauses: list[Block]) -> Block:
    """Return a keeper's standstill as its worker's, if the worker was stopped as well."""
    if free(down.start, down.end, pauses) < HASTE:
        return replace(down, why=Cause(STOPPED, "its worker was stopped"))
    return down


def _asleep(history: WorkerHistory) -> Iterator[Block]:
    """Yield the soft shutdowns in which it slept in the signal handler, and its loop stalled.

    Only a prefork worker reads results in its loop (celery/worker/worker.py,
    `wait_for_soft_shutdown`).
    """
    if history.info.pool == "prefork":
        for harm in history.did(["soft"], -math.inf, math.inf):
            end = harm.at + max(SOFT_SECONDS)
            why = Cause(CUT_OFF_BY_SHUTDOWN, "its soft shutdown")
            yield Block(why=why, start=harm.at, end=end)
