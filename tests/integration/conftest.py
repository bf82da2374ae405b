"""What is tested here of Celery and kombu is to hold on the oldest, too."""

from __future__ import annotations

import pytest

#: These have to do with neither, but for workers as they are. And a poll of kombu 5.5 blocks its
#: event loop: it can't be watched from there, nor be given up.
APART = {
    "test_keeper_environment.py",
    "test_keeper_life.py",
    "test_keeper_process.py",
    "test_plain_consumer.py",
    "test_simulated_server.py",
    "test_warm_processes.py",
    "test_watching.py",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have `make test-oldest` run it."""
    if item.path.name not in APART:
        item.add_marker("oldest")
