"""Benches for message groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_sqs_heartbeat.testing import FakeClock
from tests.conformance.group_bench import BEGIN, GroupBench

NewBench = Callable[..., GroupBench]


@pytest.fixture
def new_bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[NewBench]:
    """Make a bench; while it is there, the package's clock is that of the bench made last."""
    benches: list[GroupBench] = []

    def make(**options: Any) -> GroupBench:
        clock = FakeClock(BEGIN)
        monkeypatch.setattr("celery_sqs_heartbeat.common.clock.now", clock)
        benches.append(GroupBench(clock, **options))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()
