"""Leaves out the tests whose ids are in the JSON file that `PEERS_WITHOUT` names.

So a run covers all tests without a result in another run, even tests that it never collected.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take them out of what was collected."""
    without = set(json.loads(Path(os.environ["PEERS_WITHOUT"]).read_text()))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in without])
    items[:] = [item for item in items if item.nodeid not in without]
