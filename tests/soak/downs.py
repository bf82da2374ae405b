"""When a worker had no keeper or a stopped one, and how long that may have lasted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tests.soak.blocks import Block, lasting
from tests.soak.delays import (
    HANG_SECONDS,
    REPLACEMENT_SECONDS,
    START_HANG_SECONDS,
    replacement_pause,
)
from tests.soak.delivery import HASTE
from tests.soak.model import Harm
from tests.soak.table import KEEPER_DOWN, Cause

#: How much longer than promised a standstill may last, in seconds: the driver looks this often.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """A time without a keeper.

    Attributes:
        harm: What was done to the keeper.
        died_at: When it died of that, or infinity.
        is_brief: Whether it is so short that only the shortest leases are lost.
        is_for_good: Whether no other keeper follows, because the worker is gone.
    """

    block: Block
    harm: Harm
    died_at: float
    is_brief: bool
    is_for_good: bool

    @property
    def dies(self) -> bool:
        """Whether the keeper died of it."""
        return self.died_at < math.inf


def read_downs(
    harms: Iterable[Harm], unable: Iterable[Block], ended: float, calls: Iterable[float]
) -> list[Down]:
    """Return the times in which a worker had no keeper.

    Args:
        harms: Everything that was done to it and its keepers.
        unable: When the worker could not replace its keeper.
        ended: When the worker ended.
        calls: When its keepers made calls: then there is one.
    """
    calls = sorted(calls)
    downs: list[Down] = []
    deaths = 0
    for harm in sorted(harms, key=lambda harm: harm.at):
        if harm.what == "keeper-kill":
            pause = replacement_pause(deaths)
            until = lasting(harm.at, pause + REPLACEMENT_SECONDS, unable)
            why = Cause(KEEPER_DOWN, "its keeper was killed")
            died_at, is_brief = harm.at, pause == 0.0
            deaths += 1
        elif harm.what == "keeper-pause":
            # The worker must replace a keeper that hangs for longer.
            hang = START_HANG_SECONDS if harm.as_it_starts else HANG_SECONDS
            noticed = lasting(harm.at, hang + _LOOK_SECONDS, unable)
            has_died = harm.died and harm.until < ended
            pause = replacement_pause(deaths) if has_died else 0.0
            until = lasting(noticed, pause + REPLACEMENT_SECONDS, unable) if has_died else noticed
            until = min(until, math.inf if has_died else harm.until)
            why = Cause(KEEPER_DOWN, "its keeper was stopped")
            died_at, is_brief = harm.until if has_died else math.inf, False
            deaths += has_died
        else:
            continue
        # The call of a dead keeper may arrive a moment later.
        until = min([until, *(at for at in calls if at > died_at + HASTE)])
        is_for_good = died_at < math.inf and until >= ended
        if is_for_good:
            # The rest is time without a worker.
            until = max(harm.at, ended)
        block = Block(why=why, start=harm.at, end=until)
        downs.append(
            Down(
                block=block, harm=harm, died_at=died_at, is_brief=is_brief, is_for_good=is_for_good
            )
        )
    return downs
