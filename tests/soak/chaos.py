"""Kills and disturbs workers at random times."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import random
import signal
import time
from collections.abc import Callable

import psutil

from tests.soak.fault_injector import FaultInjector
from tests.soak.fleet import Fleet
from tests.soak.intruder import Intruder
from tests.soak.keeper_chaos import KeeperChaos
from tests.soak.member import Member
from tests.soak.model import Harm, Records
from tests.soak.worker_history import LOOK_SECONDS

#: Seconds between two disturbances of a kind, on average.
STRIKE_SECONDS = 1.0
WEATHER_SECONDS = 4.0
QUEUE_SECONDS = 8.0
TRAP_SECONDS = 3.0
#: The longest time that a worker is stopped or cut off, in seconds: longer than any lease.
LONGEST = 10.0
#: How often each kind of harm is drawn.
WEIGHTS = {
    "warm": 3,
    "quit": 3,
    "kill": 2,
    "pool-kill": 4,
    "pause": 3,
    "pause main": 2,
    "pause all": 2,
    "keeper-kill": 4,
    "keeper-pause": 2,
    "kill both": 2,
    "break": 4,
    "cut off": 2,
    "forget": 2,
}
#: How often a worker in shutdown is chosen, relative to one that is not.
LEAVING_WEIGHT = 0.3


class Chaos:
    """Does harm, and undoes it when its time has passed.

    Args:
        set_timeout: Changes a queue's visibility timeout.
    """

    def __init__(
        self,
        records: Records,
        fleet: Fleet,
        weather: FaultInjector,
        intruder: Intruder,
        chance: random.Random,
        set_timeout: Callable[[str, int], None],
    ) -> None:
        self._records = records
        self._fleet = fleet
        self._weather = weather
        self._intruder = intruder
        self._chance = chance
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._is_over = False
        self._keepers = KeeperChaos(fleet, chance, self._later, lambda: self._is_over)
        self._later(STRIKE_SECONDS, self._strike)
        self._later(0.0, self._change_weather)
        self._set_timeout = set_timeout
        self._queue_chance = random.Random(chance.random())
        self._later(QUEUE_SECONDS, self._change_queue)
        self._later(TRAP_SECONDS, self._set_trap)

    def tick(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def end(self) -> None:
        """Do no more harm, and undo all harm that was done."""
        self._is_over = True
        while self._due:
            heapq.heappop(self._due)[2]()
        self._weather.clear()
        self._records.harms.append(Harm(what="calm", at=time.monotonic(), worker=""))

    def _later(self, seconds: float, job: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._serial), job))

    def _change_weather(self) -> None:
        if not self._is_over:
            what = self._weather.change()
            self._records.harms.append(Harm(what=what, at=time.monotonic(), worker=""))
            self._later(self._chance.expovariate(1 / WEATHER_SECONDS), self._change_weather)

    def _change_queue(self) -> None:
        if not self._is_over:
            queues = [queue for queue in self._records.queues.values() if queue.timeouts]
            queue = self._queue_chance.choice(queues)
            timeout = self._queue_chance.choice(queue.timeouts)
            self._set_timeout(queue.name, timeout)
            what = f"{queue.name} hides for {timeout} s"
            self._records.harms.append(Harm(what=what, at=time.monotonic(), worker=""))
            self._later(self._queue_chance.expovariate(1 / QUEUE_SECONDS), self._change_queue)

    def _set_trap(self) -> None:
        if not self._is_over:
            what = self._intruder.strike()
            self._records.harms.append(Harm(what=what, at=time.monotonic(), worker=""))
            self._later(TRAP_SECONDS, self._set_trap)

    def _strike(self) -> None:
        if self._is_over:
            return
        self._later(self._chance.expovariate(1 / STRIKE_SECONDS), self._strike)
        members = [member for member in self._fleet if member.paused is None]
        if not members:
            return
        weights = [LEAVING_WEIGHT if member.is_leaving else 1.0 for member in members]
        (member,) = self._chance.choices(members, weights)
        (what,) = self._chance.choices([*WEIGHTS], [*WEIGHTS.values()])
        self._do(what, member)

    def _do(self, what: str, member: Member) -> None:
        if what == "warm":
            self._fleet.ask_to_exit(member)
        elif what == "kill":
            self._fleet.kill(member)
        elif not member.is_ready:
            # Nothing to disturb yet.
            return
        elif what == "quit" and member.info.pool == "gevent":
            # Celery's handler then stops greenlets from within the running one. About one worker
            # in hundreds does not exit after that.
            return
        elif what == "quit" and not member.has_quit:
            member.has_quit = True
            member.asked_to_exit_at = min(member.asked_to_exit_at, time.monotonic())
            self._fleet.record("soft" if member.is_soft else "cold", member)
            member.process.kill(signal.SIGQUIT)
        elif what == "pool-kill":
            self._kill_pool_process(member)
        elif what in ("pause", "pause main"):
            self._pause(member, only_main=what == "pause main")
        elif what == "pause all":
            self._pause(member, only_main=False, with_keeper=True)
        elif what == "keeper-kill":
            self._keepers.kill(member)
        elif what == "keeper-pause":
            self._keepers.stop(member)
        elif what == "kill both":
            self._keepers.kill_with_worker(member)
        elif what == "break" and member.info.pool != "gevent" and not member.is_leaving:
            # Without an event loop, nothing would look for the file.
            self._break(member)
        elif what == "cut off":
            self._cut_off(member)
        elif what == "forget":
            # A firewall drops silently what is sent on the connections that are open now.
            self._fleet.record("forget", member)
            member.link.proxy.forget_connections()

    def _kill_pool_process(self, member: Member) -> None:
        if pids := member.pool_pids():
            pid = self._chance.choice(pids)
            self._fleet.record("pool-kill", member, pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()

    def _pause(self, member: Member, *, only_main: bool, with_keeper: bool = False) -> None:
        pid = member.process.pid
        send: Callable[[int, int], None] = os.kill if only_main else os.killpg
        harm = member.paused = self._fleet.record("pause", member)

        def resume() -> None:
            with contextlib.suppress(ProcessLookupError):
                send(pid, signal.SIGCONT)
            harm.until, member.paused = time.monotonic(), None

        # A worker whose shutdown has begun may have exited just now.
        with contextlib.suppress(ProcessLookupError):
            send(pid, signal.SIGSTOP)
        if with_keeper:
            self._keepers.stop_until(member, lambda: member.paused is not harm)
        self._later(self._chance.random() * LONGEST, resume)

    def _break(self, member: Member) -> None:
        harm = self._fleet.record("break", member)

        def look() -> None:
            if not member.break_file.exists():
                harm.until = time.monotonic()
            elif not self._is_over:
                self._later(LOOK_SECONDS / 5, look)

        member.break_file.touch()
        look()

    def _cut_off(self, member: Member) -> None:
        harm = self._fleet.record("cut off", member)
        name = member.info.name

        def let_through() -> None:
            self._weather.let_through(name)
            harm.until = time.monotonic()

        self._weather.cut_off(name)
        self._later(self._chance.random() * LONGEST, let_through)
