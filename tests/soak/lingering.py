"""Keepers that continue for a while after their worker has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from tests.soak.keepers import left_of
from tests.soak.member import Member

#: How long a keeper may outlive its worker, in seconds, not counting the times in which it was
#: stopped: it tries for fifteen seconds to release the worker's messages, and closes its journal.
LINGERING_SECONDS = 30.0
#: How long a pool's processes, which end at once, may outlive their worker on a machine that
#: stalls, in seconds.
SETTLING_SECONDS = 15.0


class Lingering:
    """Workers that have ended, but whose keeper or pool has not.

    Args:
        conclude: Called with a worker when these have ended too, or are late.
    """

    def __init__(self, conclude: Callable[[Member], None]) -> None:
        self._conclude = conclude
        self._members: list[Member] = []

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, member: Member) -> None:
        """Wait for the other processes of a worker that has ended."""
        self._members.append(member)

    def reap(self) -> list[str]:
        """Remove workers of which nothing is left. Return a fault for each keeper that is late."""
        faults = []
        for member in [*self._members]:
            is_late = time.monotonic() > _patience_ends(member)
            if is_late:
                faults.append(f"the keeper of {member.info.name} ran long after its worker's end")
            if is_late or (not member.keepers.living() and _is_settled(member)):
                member.info.keeper_ended = time.monotonic()
                self._members.remove(member)
                self._conclude(member)
        return faults


def _is_settled(member: Member) -> bool:
    """Return whether its pool's processes have ended too, or are late."""
    is_late = time.monotonic() > member.info.ended + SETTLING_SECONDS
    return is_late or not left_of(member.process.pid)


def _patience_ends(member: Member) -> float:
    """Return until when the keeper of a worker that has ended may run."""
    pauses = sum(
        min(harm.until, time.monotonic()) - harm.at
        for harm in member.harms
        if harm.what in ("keeper-pause", "cut off")
    )
    return member.info.ended + LINGERING_SECONDS + pauses
