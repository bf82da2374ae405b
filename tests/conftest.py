"""An SQS server and a proxy in front of it, for every test that makes real HTTP calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import share_descriptions
from tests.support.proxy import FaultProxy
from tests.support.servers import MinistackServer, SqsServer
from tests.support.shell import Shell

share_descriptions()


@pytest.fixture(scope="session")
def sqs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    """One server for all tests. Each test must use its own queues."""
    with MinistackServer(tmp_path_factory.mktemp("sqs") / "ministack.log") as server:
        yield server


@pytest.fixture
def proxy(sqs_server: SqsServer) -> Iterator[FaultProxy]:
    """A proxy without rules, in front of the server."""
    with FaultProxy(sqs_server.url) as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell in its own folder, whose jobs end with the test."""
    shell = Shell(tmp_path)
    yield shell
    shell.end()
