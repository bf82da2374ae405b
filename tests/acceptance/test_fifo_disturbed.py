"""Message groups of a FIFO queue under everything that kills, cuts off and fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.acceptance.disturbed import ATTRIBUTES, run_disturbed
from tests.acceptance.ordered import Orders
from tests.acceptance.scene import StartWorker


@pytest.mark.parametrize("batch", [1, 10])
def test_every_group_succeeds_in_order_whatever_is_killed(
    start_worker: StartWorker, tmp_path: Path, batch: int
) -> None:
    with SimulatedServer() as server:
        orders = Orders(
            server=server,
            start=start_worker,
            ledger=tmp_path / "ordered.ledger",
            attributes=ATTRIBUTES,
        )
        run_disturbed(orders, timeout=600.0, batch=batch)
