"""When a keeper's process is taken to hang."""

from __future__ import annotations

from mmap import mmap

import pytest

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.link.pulse import LAST_TICK, LOOK_SECONDS, Pulse
from celery_sqs_heartbeat.testing import FakeClock


@pytest.mark.parametrize(("last", "is_gone"), [(1.0, True), (LAST_TICK, False)])
def test_a_keeper_that_shows_nothing_more_is_gone_unless_it_ends(
    last: float, is_gone: bool
) -> None:
    clock, table = FakeClock(), Table(mmap(-1, Table.size_for(REACH)))
    pulse = Pulse(table, clock)
    pulse.begin()
    table.tick = last
    looks = []
    for _ in range(20):
        clock.advance(LOOK_SECONDS)
        looks.append(pulse.is_gone())
    assert any(looks) is is_gone
