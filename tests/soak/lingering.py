"""Keepers that continue for a while after their worker has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from tests.soak.member import Member

#: How long a keeper may outlive its worker, in seconds, not counting the times in which it was
#: stopped: it tries for fifteen seconds to release the worker's messages, and closes its journal.
LINGERING_SECONDS = 30.0
#: How long a pool's processes may outlive their worker on a busy machine, in seconds.
SETTLING_SECONDS = 1.0


class Lingering:
    """Workers that have ended, but whose keeper has not.

    Args:
        conclude: Called with a worker when its keeper has ended too, or is late.
    """

    def __init__(self, conclude: Callable[[Member], None]) -> None:
        self._conclude = conclude
        self._members: list[Member] = []

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, member: Member) -> None:
        """Wait for the keeper of a worker that has ended."""
        self._members.append(member)

    def reap(self) -> list[str]:
        """Remove workers whose keeper has ended. Return a fault for each keeper that is late."""
        faults = []
        for member in [*self._members]:
            is_late = time.monotonic() > _patience_ends(member)
            if is_late:
                faults.append(f"the keeper of {member.info.name} ran long after its worker's end")
            is_settled = time.monotonic() > member.info.ended + SETTLING_SECONDS
            if is_late or (is_settled and not member.keepers.living()):
                member.info.keeper_ended = time.monotonic()
                self._members.remove(member)
                self._conclude(member)
        return faults


def _patience_ends(member: Member) -> float:
    """Return until when the keeper of a worker that has ended may run."""
    pauses = sum(
        min(harm.until, time.monotonic()) - harm.at
        for harm in member.harms
        if harm.what in ("keeper-pause", "cut off")
    )
    return member.info.ended + LINGERING_SECONDS + pauses
