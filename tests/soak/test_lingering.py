"""How long the fleet waits for what is left of a worker that has ended."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.soak import lingering
from tests.soak.lingering import SETTLING_SECONDS, Lingering


def ended(seconds_ago: float) -> Any:
    """Return a worker whose keeper has ended too."""
    info = SimpleNamespace(name="w", ended=time.monotonic() - seconds_ago)
    keepers = SimpleNamespace(living=list)
    return SimpleNamespace(info=info, harms=[], keepers=keepers, process=SimpleNamespace(pid=1))


@pytest.mark.parametrize(("seconds_ago", "waits"), [(0.0, True), (SETTLING_SECONDS, False)])
def test_a_worker_is_concluded_once_its_pool_has_ended_or_is_late(
    seconds_ago: float, *, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = [2]
    monkeypatch.setattr(lingering, "left_of", lambda group: pool)
    concluded: list[Any] = []
    members = Lingering(concluded.append)
    members.add(ended(seconds_ago))
    members.reap()
    assert bool(concluded) is not waits
    pool.clear()
    members.reap()
    assert len(concluded) == 1
