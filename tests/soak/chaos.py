"""Kills and disturbs workers and their keepers at random times, and sets traps in their journal."""

from __future__ import annotations

import contextlib
import datetime
import heapq
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from celery_sqs_heartbeat.journal.folder import unpack
from celery_sqs_heartbeat.journal.reading import closed_segments
from tests.soak.fleet import Fleet
from tests.soak.link import FaultInjector
from tests.soak.member import Member, lives
from tests.soak.records import Records
from tests.soak.workers import LOOK_SECONDS

#: Seconds between two disturbances of a kind, on average.
STRIKE_SECONDS = 1.0
WEATHER_SECONDS = 4.0
QUEUE_SECONDS = 8.0
TRAP_SECONDS = 3.0
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
#: A line in the format of a journal. A worker that closes it as a segment gives it away.
SECRET = b'{"v":1,"ts":1,"secret":"not yours"}\n'


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
        self._set_timeout = set_timeout
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._is_over = False
        self._queue_chance = random.Random(chance.random())
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
        self._records.note("calm")

    def _later(self, seconds: float, job: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._serial), job))

    def _change_weather(self) -> None:
        if not self._is_over:
            self._records.note(self._weather.change())
            self._later(self._chance.expovariate(1 / WEATHER_SECONDS), self._change_weather)

    def _change_queue(self) -> None:
        if not self._is_over:
            queues = [queue for queue in self._records.queues.values() if queue.timeouts]
            queue = self._queue_chance.choice(queues)
            timeout = self._queue_chance.choice(queue.timeouts)
            self._set_timeout(queue.name, timeout)
            self._records.note(f"{queue.name} hides for {timeout} s")
            self._later(self._queue_chance.expovariate(1 / QUEUE_SECONDS), self._change_queue)

    def _set_trap(self) -> None:
        if not self._is_over:
            self._records.note(self._intruder.strike())
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


def _link_folder(place: Path, secret: Path) -> None:
    place.parent.rmdir()
    place.parent.symlink_to(secret.parent)


def _link_draft(place: Path, secret: Path) -> None:
    place.write_bytes(b'{"v":1,"ts":1}\n')
    place.with_name(".seg-1.jsonl.zst").symlink_to(secret)


#: Ways to make a name in a journal lead to a secret or to nowhere.
TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda place, secret: place.symlink_to(secret),
    "hard link": lambda place, secret: place.hardlink_to(secret),
    "pipe": lambda place, secret: os.mkfifo(place),
    "linked folder": _link_folder,
    "linked draft": _link_draft,
}


class Intruder:
    """Another user of the machine, who sets traps in the journal that the workers share.

    Attributes:
        journal: The folder that the workers write to.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.journal = folder / "journal"
        self._secrets = folder / "secrets"
        self._chance = chance
        self._traps = 0

    def strike(self) -> str:
        """Set a trap where the next worker looks for segments to close. Return its kind."""
        self._traps += 1
        name = f"intruder{self._traps}"
        secret = self._secrets / name / "seg-1.jsonl.open"
        secret.parent.mkdir(parents=True)
        secret.write_bytes(SECRET)
        day = datetime.datetime.now(datetime.timezone.utc).date()
        place = self.journal / f"dt={day}" / f"worker={name}" / secret.name
        place.parent.mkdir(parents=True)
        what = self._chance.choice([*TRAPS])
        TRAPS[what](place, secret)
        return f"trap: {what}"

    def surprises(self) -> list[str]:
        """Return a fault for each trap that worked."""
        kept = [path.read_bytes() for path in self._secrets.rglob("*") if path.is_file()]
        own = [path for path in closed_segments(self.journal) if not path.parent.is_symlink()]
        faults = [
            f"a secret was given away in {path}"
            for path in own
            if SECRET in unpack(path.read_bytes())
        ]
        if len(kept) != self._traps or set(kept) - {SECRET}:
            faults.append(f"{self._secrets} was changed")
        if not any("intruder" not in path.parent.name for path in own):
            faults.append("no worker has written a journal")
        return faults
