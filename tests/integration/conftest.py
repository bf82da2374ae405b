"""Marks the tests that must also pass with other versions."""

from __future__ import annotations

import pytest

#: These tests depend on neither, except for the workers they run.
APART = {
    "test_plain_consumer.py",
    "test_simulated_server.py",
    "test_warm_processes.py",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Make `make test-versions` run the test."""
    if item.path.name not in APART:
        item.add_marker("versions")
