"""Runs a soak: first work and harm, then no harm until every queue is empty."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.chaos import Chaos
from tests.soak.counts import Counts
from tests.soak.fault_injector import FaultInjector
from tests.soak.fleet import Fleet
from tests.soak.intruder import Intruder
from tests.soak.link import Link
from tests.soak.load import QUEUES, Load
from tests.soak.model import Harm, Note, Records
from tests.soak.server import SimulatedProcess
from tests.soak.starving import StarvationWatch, note_stall
from tests.support.stalls import StallWatch
from tests.support.waiting import PATIENCE

#: How many workers run that are not in shutdown.
WORKERS = 3
#: The most workers at a time. Each has 2 to 4 processes: more would only wait for a CPU.
MOST_WORKERS = 5
#: How many tasks are sent per second, on average.
TASKS_PER_SECOND = 5.0
#: No task is sent while so many messages wait.
MOST_WAITING = 25
TICK = 0.05


@dataclass(kw_only=True)
class Soak:
    """One run of the soak.

    Attributes:
        surprises: Faults that concern no message, for example of a worker.
    """

    seed: int
    seconds: float
    folder: Path
    records: Records = field(default_factory=lambda: Records(queues=QUEUES))
    surprises: list[str] = field(default_factory=list)

    def run(self) -> Records:
        """Run it and return its records. By then, all processes have ended."""
        records = self.records
        chances = (random.Random(f"{self.seed} {what}") for what in ("weather", "starts"))
        weather = FaultInjector(*chances)
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(SimulatedProcess(self.folder / "server.log"))
            server.create(QUEUES.values())
            watch = StarvationWatch(self._note_starved)
            watch.watch("proxy", os.getpid())
            watch.watch("server", server.pid)
            watch.start()
            stack.callback(watch.stop)
            own_stalls = StallWatch(lambda stall: note_stall(records, stall))
            own_stalls.start()
            stack.callback(own_stalls.stop)
            own = Link("soak", server.url, records.calls)
            stack.enter_context(own.proxy)
            load = Load(own.proxy.broker_url, random.Random(f"{self.seed} load"))
            stack.callback(load.close)
            chance = random.Random(f"{self.seed} workers")
            fleet = Fleet(records, weather, chance, watch, server.url, self.folder)
            stack.callback(fleet.close)
            intruder = Intruder(self.folder, random.Random(f"{self.seed} intruder"))
            chance = random.Random(f"{self.seed} chaos")
            chaos = Chaos(records, fleet, weather, intruder, chance, server.set_timeout)
            queues = Counts(server.client())
            self._work(fleet, chaos, load, queues)
            chaos.end()
            self._drain(fleet, queues)
            records.left, records.dead = queues.take_left(), queues.take_dead()
            self._end(fleet)
            self.surprises += [*fleet.surprises, *intruder.surprises()]
        records.notes = read_ledger(fleet.ledger)
        return records

    def _work(self, fleet: Fleet, chaos: Chaos, load: Load, queues: Counts) -> None:
        chance = random.Random(f"{self.seed} times")
        began = time.monotonic()
        next_task = next_look = began
        waiting = 0
        fleet.start(queues=[*QUEUES])
        while (now := time.monotonic()) < began + self.seconds:
            chaos.tick()
            fleet.reap()
            staying = sum(not member.is_leaving for member in fleet)
            if staying < WORKERS and sum(1 for _ in fleet) < MOST_WORKERS:
                fleet.start()
            if now >= next_look:
                next_look, waiting = now + 1, queues.waiting()
            if now >= next_task:
                next_task = now + chance.expovariate(TASKS_PER_SECOND)
                if waiting < MOST_WAITING:
                    load.send()
            time.sleep(TICK)

    def _drain(self, fleet: Fleet, queues: Counts) -> None:
        for member in fleet:
            fleet.ask_to_exit(member)
        for pool in ("prefork", "threads"):
            fleet.start(pool, [*QUEUES])
        deadline = time.monotonic() + PATIENCE
        while queues.left() and time.monotonic() < deadline:
            fleet.reap()
            time.sleep(4 * TICK)

    def _end(self, fleet: Fleet) -> None:
        for member in fleet:
            fleet.ask_to_exit(member)
        while not fleet.is_gone:
            fleet.reap()
            time.sleep(TICK)

    def _note_starved(self, name: str, since: float, until: float) -> None:
        # The calls of all workers pass the proxy and the server.
        worker = name if name in self.records.workers else ""
        harm = Harm(what="starved", at=since, worker=worker, until=until)
        self.records.harms.append(harm)


def read_ledger(ledger: Path) -> list[Note]:
    """Return what the tasks and workers recorded."""
    return [Note(**json.loads(line)) for line in ledger.read_text().splitlines()]
