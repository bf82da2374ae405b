"""When a simulated process looks again at messages that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How often it looks whether an extension is confirmed, in seconds.
CONFIRM_LOOK_SECONDS = 0.25
#: How often it looks for messages whose turn has come, in visibility timeouts. A real process looks
#: every second, or more often. That would find nothing more here, and would take many events.
LOOK_PART = 0.1


def next_look(world: World, is_unsure: bool, waiting: int) -> float | None:
    """Return after how many seconds to look again; None if nothing waits.

    Args:
        is_unsure: Whether it is not certain of all messages whether they are ours.
        waiting: How many messages wait for another of their group.
    """
    if is_unsure:
        return CONFIRM_LOOK_SECONDS
    return LOOK_PART * world.profile.terms.visibility_timeout if waiting else None
