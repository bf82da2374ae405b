"""Kills and disturbs workers and their keepers at random times."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial

import psutil

from tests.soak.fleet import Fleet
from tests.soak.link import FaultInjector
from tests.soak.member import Member, lives
from tests.soak.records import Records
from tests.soak.workers import LOOK_SECONDS

#: Seconds between two disturbances of a kind, on average.
STRIKE_SECONDS = 1.0
WEATHER_SECONDS = 4.0
#: The longest time that a worker is stopped or cut off, in seconds: longer than any lease.
LONGEST = 10.0
#: The longest time that a keeper is stopped, in seconds: longer than its replacement takes.
KEEPER_LONGEST = 4.0
#: The longest time between the kill of a worker and the kill of its keeper, in seconds.
BETWEEN_KILLS = 1.0
#: On a busy machine, a keeper that is younger may still be starting, in seconds.
YOUNG_SECONDS = 4.0
#: How often a killed keeper's successor is killed, too, and for how long it may have run, in
#: seconds: not until its first tick.
AGAIN, START_SECONDS = 0.5, 0.6
#: How often a stopped keeper is checked, in seconds.
KEEPER_LOOK_SECONDS = 0.05
#: How often a worker in shutdown is chosen, relative to one that is not.
LEAVING_WEIGHT = 0.3


class Chaos:
    """Does harm, and undoes it when its time has passed."""

    def __init__(
        self,
        records: Records,
        fleet: Fleet,
        weather: FaultInjector,
        chance: random.Random,
    ) -> None:
        self._records = records
        self._fleet = fleet
        self._weather = weather
        self._chance = chance
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._is_over = False
        #: How often each kind of harm is drawn, and what does it.
        self._harms: dict[str, tuple[int, Callable[[Member], object]]] = {
            "warm": (3, fleet.ask_to_exit),
            "quit": (3, self._quit),
            "kill": (2, fleet.kill),
            "pool-kill": (4, self._kill_pool_process),
            "pause": (3, self._pause),
            "pause main": (2, partial(self._pause, only_main=True)),
            "pause all": (2, partial(self._pause, with_keeper=True)),
            "keeper-kill": (4, self._kill_keeper),
            "keeper-pause": (2, self._pause_keeper),
            "kill both": (2, self._kill_both),
            "break": (4, self._break),
            "cut off": (2, self._cut_off),
            "forget": (2, self._forget),
        }
        self._later(STRIKE_SECONDS, self._strike)
        self._later(0.0, self._change_weather)

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
        self._records.note("calm")

    def _later(self, seconds: float, job: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._serial), job))

    def _change_weather(self) -> None:
        if not self._is_over:
            self._records.note(self._weather.change())
            self._later(self._chance.expovariate(1 / WEATHER_SECONDS), self._change_weather)

    def _strike(self) -> None:
        if self._is_over:
            return
        self._later(self._chance.expovariate(1 / STRIKE_SECONDS), self._strike)
        members = [member for member in self._fleet if member.paused is None]
        if not members:
            return
        weights = [LEAVING_WEIGHT if member.is_leaving else 1.0 for member in members]
        (member,) = self._chance.choices(members, weights)
        weights = [weight for weight, _ in self._harms.values()]
        (what,) = self._chance.choices([*self._harms], weights)
        # Otherwise there is nothing to disturb yet.
        if what in ("warm", "kill") or member.is_ready:
            self._harms[what][1](member)

    def _quit(self, member: Member) -> None:
        # In gevent, Celery's handler stops greenlets from within the running one. About one worker
        # in hundreds does not exit after that.
        if member.info.pool != "gevent" and not member.has_quit:
            member.has_quit = True
            member.asked_to_exit_at = min(member.asked_to_exit_at, time.monotonic())
            self._fleet.record("soft" if member.is_soft else "cold", member)
            member.process.kill(signal.SIGQUIT)

    def _kill_pool_process(self, member: Member) -> None:
        if pids := member.pool_pids():
            pid = self._chance.choice(pids)
            self._fleet.record("pool-kill", member, pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()

    def _pause(self, member: Member, *, only_main: bool = False, with_keeper: bool = False) -> None:
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
            self._stop_keeper(member, lambda: member.paused is not harm)
        self._later(self._chance.random() * LONGEST, resume)

    def _break(self, member: Member) -> None:
        if member.info.pool == "gevent" or member.is_leaving:
            # Without an event loop, nothing would look for the file.
            return
        harm = self._fleet.record("break", member)

        def look() -> None:
            if not member.break_file.exists():
                harm.until = time.monotonic()
            elif not self._is_over:
                self._later(LOOK_SECONDS / 5, look)

        member.break_file.touch()
        look()

    def _cut_off(self, member: Member) -> None:
        harm, name = self._fleet.record("cut off", member), member.info.name

        def let_through() -> None:
            self._weather.cut_off -= {name}
            harm.until = time.monotonic()

        self._weather.cut_off |= {name}
        self._later(self._chance.random() * LONGEST, let_through)

    def _forget(self, member: Member) -> None:
        """Have a firewall drop silently what is sent on the connections that are open now."""
        self._fleet.record("forget", member)
        member.link.proxy.forget_connections()

    # -- Keepers ----------------------------------------------------------------------------

    def _kill_keeper(self, member: Member) -> None:
        """Kill a worker's keeper, and maybe others before they are ready."""
        if keepers := member.living_keepers():
            self._fleet.record("keeper-kill", member, keepers[-1].pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                keepers[-1].kill()
            if self._chance.random() < AGAIN:
                self._later(
                    self._chance.random() * START_SECONDS, lambda: self._kill_keeper(member)
                )

    def _kill_both(self, member: Member) -> None:
        """Kill a worker and its keeper, one soon after the other."""

        def kill() -> None:
            if member in [*self._fleet]:
                self._fleet.kill(member)

        kills = [kill, lambda: self._kill_keeper(member)]
        self._chance.shuffle(kills)
        kills[0]()
        self._later(self._chance.random() * BETWEEN_KILLS, kills[1])

    def _pause_keeper(self, member: Member) -> None:
        until = time.monotonic() + self._chance.random() * KEEPER_LONGEST
        self._stop_keeper(member, lambda: time.monotonic() >= until)

    def _stop_keeper(self, member: Member, is_enough: Callable[[], bool]) -> None:
        """Stop a worker's keeper until `is_enough()`, or until its worker has killed it."""
        if not (keepers := member.living_keepers()):
            return
        keeper = keepers[-1]
        harm = self._fleet.record("keeper-pause", member, keeper.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            harm.as_it_starts = time.time() - keeper.create_time() < YOUNG_SECONDS

        def look() -> None:
            if lives(keeper) and not (is_enough() or self._is_over):
                self._later(KEEPER_LOOK_SECONDS, look)
                return
            harm.until, harm.died = time.monotonic(), not lives(keeper)
            with contextlib.suppress(psutil.NoSuchProcess):
                keeper.resume()

        with contextlib.suppress(psutil.NoSuchProcess):
            keeper.suspend()
        look()
