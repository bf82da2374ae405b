"""Pytest fixtures: `pytest_plugins = ["celery_sqs_heartbeat.testing.fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_sqs_heartbeat.testing.clock import FakeClock
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from celery_sqs_heartbeat.testing.sqs import SimulatedSqs


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock at 0 that moves only when the test moves it."""
    return FakeClock()


@pytest.fixture
def simulated_sqs(fake_clock: FakeClock) -> SimulatedSqs:
    """An SQS in this process, with the methods of a boto3 client, on `fake_clock`."""
    return SimulatedSqs(fake_clock)


@pytest.fixture
def simulated_sqs_server() -> Iterator[SimulatedServer]:
    """An SQS that real workers and boto3 clients reach at its `url`."""
    with SimulatedServer() as server:
        yield server
