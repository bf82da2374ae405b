"""Starts the soak's workers, notices their exits, and ends them with the soak."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.soak.link import FaultInjector, Link
from tests.soak.member import Member, left_of, start_member, unrepeated_messages
from tests.soak.records import Harm, Records
from tests.support.stalls import StarvationWatch
from tests.support.waiting import wait_until

#: How often it looks for new keepers, in seconds.
LOOK_SECONDS = 0.1
#: How long a shutdown may take, in seconds, not counting the times in which the worker was stopped.
ENDING_SECONDS = 60.0
#: How long a keeper may outlive its worker, in seconds, not counting the times in which it was
#: stopped: it tries for fifteen seconds to release the worker's messages, and closes its journal.
LINGERING_SECONDS = 30.0
#: How long a pool's processes, which end at once, may outlive their worker on a machine that
#: stalls, in seconds.
SETTLING_SECONDS = 15.0
#: How long a worker may take to log its stacks, in seconds.
STACKS_SECONDS = 20.0
#: A deadlock of Celery. A cold shutdown begins while a job is being written to a pool process. The
#: signal handler waits for the job's result, but nothing continues to write the job
#: (celery/concurrency/asynpool.py). By then the worker has released its messages.
_WRITES_INDEFINITELY = re.compile(r"in _write_job\n(?:  .*\n)+?.*in on_stop_not_started\n")
#: After only these kinds of harm, a worker must exit with code 0.
GENTLE = {"warm", "pause", "break", "cut off", "forget", "pool-kill", "keeper-kill", "keeper-pause"}


class Fleet:
    """Starts and reaps workers. Iterating over it yields the workers that run.

    Attributes:
        surprises: Faults of workers, for example an exit that no one requested.
    """

    def __init__(
        self,
        records: Records,
        weather: FaultInjector,
        chance: random.Random,
        watch: StarvationWatch,
        server_url: str,
        folder: Path,
    ) -> None:
        self._records = records
        self._weather = weather
        self._chance = chance
        self._watch = watch
        self._server_url = server_url
        self._folder = folder
        self._members: list[Member] = []
        #: Workers that have ended, but whose keeper or pool has not.
        self._lingering: list[Member] = []
        self._looked_at = 0.0
        self.ledger = folder / "ledger.jsonl"
        self.ledger.touch()
        self.surprises: list[str] = []

    def __iter__(self) -> Iterator[Member]:
        return iter([member for member in self._members if member.info.ended == math.inf])

    @property
    def is_gone(self) -> bool:
        """Whether no worker and no keeper is left."""
        return not [*self] and not self._lingering

    def start(self, pool: str | None = None, queues: list[str] | None = None) -> Member:
        """Start a worker. Choices that the caller does not make are random."""
        name = f"w{len(self._members) + 1:03}"
        link = Link(name, self._server_url, self._records.calls, self._weather)
        member = start_member(
            name, link, self._folder, self.ledger, self._chance, pool=pool, queues=queues
        )
        self._members.append(member)
        self._records.workers[name] = member.info
        self._watch.watch(name, member.process.pid)
        return member

    def ask_to_exit(self, member: Member) -> None:
        """Request a warm shutdown of a worker, once."""
        if not member.is_leaving:
            member.asked_to_exit_at = time.monotonic()
            self.record("warm", member)
            member.process.kill(signal.SIGTERM)

    def kill(self, member: Member) -> None:
        """Kill a worker's main process. The processes of its pool must end with it."""
        self._look_for_keepers(member)
        self.record("kill", member)
        with contextlib.suppress(ProcessLookupError):
            os.kill(member.process.pid, signal.SIGKILL)
        member.process.wait_for_exit()
        self._note_gone(member)

    def record(self, what: str, member: Member, pid: int = 0) -> Harm:
        """Record what is about to be done to a worker."""
        harm = self._records.note(what, member.info.name, pid)
        member.harms.append(harm)
        return harm

    def reap(self) -> None:
        """Notice which workers have exited, and kill those that are late."""
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._looked_at = time.monotonic()
            for member in self:
                self._look_for_keepers(member)
            for member in [*self._lingering]:
                is_late = time.monotonic() > keeper_patience_ends(member)
                if is_late:
                    name = member.info.name
                    self.surprises.append(f"the keeper of {name} ran long after its worker's end")
                if is_late or (not member.living_keepers() and is_settled(member)):
                    member.info.keeper_ended = time.monotonic()
                    self._lingering.remove(member)
                    self._conclude(member)
        for member in self:
            code = member.process.process.exit_code
            if code is not None:
                self._note_end(member, code)
            elif member.paused is None and time.monotonic() > patience_ends(member):
                self._give_up(member)

    def close(self) -> None:
        """End all processes and proxies."""
        for member in (*self, *self._lingering):
            self._conclude(member)

    def _note_end(self, member: Member, code: int) -> None:
        name = member.info.name
        was_gentle = {harm.what for harm in member.harms} <= GENTLE
        if not member.is_leaving:
            self.surprises.append(f"{name} exited without a shutdown, with exit code {code}")
        elif code and member.is_ready and was_gentle:
            self.surprises.append(f"{name} exited with code {code} after a warm shutdown")
        self._note_gone(member)

    def _note_gone(self, member: Member) -> None:
        """Note that a worker is gone. Its keeper may continue for a while."""
        member.info.ended = time.monotonic()
        self._lingering.append(member)

    def _conclude(self, member: Member) -> None:
        """End the processes that are left of a worker."""
        name = member.info.name
        if member.info.ended < math.inf and (left := left_of(member.process.pid)):
            self.surprises.append(f"{name} left processes of its pool behind: {left}")
        for keeper in member.living_keepers():
            with contextlib.suppress(psutil.NoSuchProcess):
                keeper.kill()
        member.process.teardown()
        member.link.proxy.stop()
        lapsing = unrepeated_messages(member.process.logs())
        self._records.unrepeated |= {(name, message_id) for message_id in lapsing}
        if surprise := member.unasked_deaths():
            self.surprises.append(surprise)

    def _look_for_keepers(self, member: Member) -> None:
        for keeper in member.new_keepers():
            self._watch.watch(member.info.name, keeper.pid)

    def _give_up(self, member: Member) -> None:
        # Celery writes its stacks into its log, unless it hangs where it cannot.
        member.process.kill(signal.SIGUSR1)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: writes_indefinitely(member.process.logs()), STACKS_SECONDS)
        if not writes_indefinitely(member.process.logs()):
            self.surprises.append(
                f"{member.info.name} still ran long after its shutdown began; its log has its "
                "stacks"
            )
        self.kill(member)


def is_settled(member: Member) -> bool:
    """Return whether the processes of an ended worker's pool have ended too, or are late."""
    is_late = time.monotonic() > member.info.ended + SETTLING_SECONDS
    return is_late or not left_of(member.process.pid)


def patience_ends(member: Member) -> float:
    """Return until when a worker in shutdown may run."""
    return member.asked_to_exit_at + ENDING_SECONDS + _stopped_for(member, "pause")


def keeper_patience_ends(member: Member) -> float:
    """Return until when the keeper of a worker that has ended may run."""
    return member.info.ended + LINGERING_SECONDS + _stopped_for(member, "keeper-pause")


def _stopped_for(member: Member, pause: str) -> float:
    """Return for how many seconds a process could not end."""
    return sum(
        min(harm.until, time.monotonic()) - harm.at
        for harm in member.harms
        if harm.what in (pause, "cut off")
    )


def writes_indefinitely(log: str) -> bool:
    """Return whether the stacks in a worker's log show Celery's deadlock."""
    return _WRITES_INDEFINITELY.search(log) is not None
