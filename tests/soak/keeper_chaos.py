"""Kills and stops the keepers of workers."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable

import psutil

from tests.soak.fleet import Fleet
from tests.soak.keepers import lives
from tests.soak.member import Member

#: The longest time that a keeper is stopped, in seconds: longer than its replacement takes.
LONGEST = 4.0
#: The longest time between the kill of a worker and the kill of its keeper, in seconds.
BETWEEN_KILLS = 1.0
#: On a busy machine, a keeper that is younger may still be starting, in seconds.
YOUNG_SECONDS = 4.0
#: How often a killed keeper's successor is killed, too, and for how long it may have run, in
#: seconds: not until its first tick.
AGAIN, START_SECONDS = 0.5, 0.6
#: How often a stopped keeper is checked, in seconds.
LOOK_SECONDS = 0.05


class KeeperChaos:
    """Does harm to keepers.

    Args:
        later: Does a job after so many seconds, or when the soak stops doing harm.
        is_over: Returns whether the soak has stopped doing harm.
    """

    def __init__(
        self,
        fleet: Fleet,
        chance: random.Random,
        later: Callable[[float, Callable[[], None]], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._fleet = fleet
        self._chance = chance
        self._later = later
        self._is_over = is_over

    def kill(self, member: Member) -> None:
        """Kill a worker's keeper, and maybe others before they are ready."""
        if keepers := member.keepers.living():
            self._fleet.record("keeper-kill", member, keepers[-1].pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                keepers[-1].kill()
            if self._chance.random() < AGAIN:
                self._later(self._chance.random() * START_SECONDS, lambda: self.kill(member))

    def kill_with_worker(self, member: Member) -> None:
        """Kill a worker and its keeper, one soon after the other."""

        def kill() -> None:
            if member in [*self._fleet]:
                self._fleet.kill(member)

        kills = [kill, lambda: self.kill(member)]
        self._chance.shuffle(kills)
        kills[0]()
        self._later(self._chance.random() * BETWEEN_KILLS, kills[1])

    def stop(self, member: Member) -> None:
        """Stop a worker's keeper for a while."""
        until = time.monotonic() + self._chance.random() * LONGEST
        self.stop_until(member, lambda: time.monotonic() >= until)

    def stop_until(self, member: Member, is_enough: Callable[[], bool]) -> None:
        """Stop a worker's keeper until `is_enough()`, or until its worker has killed it."""
        if not (keepers := member.keepers.living()):
            return
        keeper = keepers[-1]
        harm = self._fleet.record("keeper-pause", member, keeper.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            harm.as_it_starts = time.time() - keeper.create_time() < YOUNG_SECONDS

        def look() -> None:
            if lives(keeper) and not (is_enough() or self._is_over()):
                self._later(LOOK_SECONDS, look)
                return
            harm.until, harm.died = time.monotonic(), not lives(keeper)
            with contextlib.suppress(psutil.NoSuchProcess):
                keeper.resume()

        with contextlib.suppress(psutil.NoSuchProcess):
            keeper.suspend()
        look()
