"""Workers on LocalStack's FIFO queue keep the order of its groups, whatever is killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.disturbed import ATTRIBUTES, run_disturbed
from tests.acceptance.ordered import Orders
from tests.acceptance.scene import StartWorker
from tests.conformance.servers.localstack import LocalStackServer
from tests.support.workers import ProcessWorker, launch


class LocalStackBroker:
    """LocalStack, as a broker."""

    def __init__(self, server: LocalStackServer) -> None:
        self._server = server
        self.broker_url = server.url.replace("http://", "sqs://key:secret@")

    def client(self) -> Any:
        return self._server.client()


@pytest.fixture
def localstack(tmp_path: Path) -> Iterator[LocalStackBroker]:
    server = LocalStackServer(tmp_path)
    server.start()
    yield LocalStackBroker(server)
    server.stop()


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    workers: list[ProcessWorker] = []

    def start(
        app: str, args: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> ProcessWorker:
        name = f"worker{len(workers) + 1}"
        workers.append(launch(name, app=app, args=args, env=env or {}, log_dir=tmp_path))
        return workers[-1]

    yield start
    for worker in workers:
        worker.teardown()


def test_every_group_succeeds_in_order_whatever_is_killed(
    localstack: LocalStackBroker, start_worker: StartWorker, tmp_path: Path
) -> None:
    orders = Orders(
        server=localstack,
        start=start_worker,
        ledger=tmp_path / "ordered.ledger",
        attributes=ATTRIBUTES,
    )
    run_disturbed(orders, timeout=300.0)
