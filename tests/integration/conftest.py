"""All that is tested here is to hold on the oldest Celery and kombu, too."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have `make test-oldest` run it."""
    item.add_marker("oldest")
