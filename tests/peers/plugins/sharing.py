"""Runs a part of a suite, and writes the result of each test.

Parallel pytest processes share the tests: a free process claims the next test. So they end at about
the same time, and no one needs to know how long a test takes. A claim is a file in the folder that
`PEERS_CLAIMS` names. Tests whose ids are in the JSON file that `PEERS_WITHOUT` names are left out,
so that a run covers all tests without a result in another run, even tests that it never collected.
The results go, as JSON, to the file that `PEERS_OUTCOMES` names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import botocore.loaders
import botocore.session
import pytest

T = TypeVar("T")
_ROWS: dict[str, tuple[str, str]] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take those to leave out of what was collected."""
    without = set(json.loads(Path(os.environ["PEERS_WITHOUT"]).read_text()))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in without])
    items[:] = [item for item in items if item.nodeid not in without]


def claimed(items: Sequence[T], folder: Path) -> Iterator[T]:
    """Yield those that no other process has claimed, and claim each."""
    for number, item in enumerate(items):
        try:
            (folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield item


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests this process claims. If collection failed, leave it to pytest."""
    if session.testsfailed:
        return None
    mine = claimed(session.items, Path(os.environ["PEERS_CLAIMS"]))
    item = next(mine, None)
    while item is not None:
        # A test's fixtures are torn down unless the next one needs them.
        following = next(mine, None)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how the test's call ended, or what failed or was skipped around it."""
    failed_before = _ROWS.get(report.nodeid, ("",))[0] == "failed"
    if not failed_before and (report.when == "call" or report.outcome != "passed"):
        _ROWS[report.nodeid] = (report.outcome, report.longreprtext if report.failed else "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a module that could not be collected."""
    if report.failed:
        _ROWS[report.nodeid] = (report.outcome, report.longreprtext)


def pytest_sessionfinish() -> None:
    """Write all results."""
    Path(os.environ["PEERS_OUTCOMES"]).write_text(json.dumps(_ROWS, indent=1))


botocore.session.create_loader = cache(botocore.loaders.create_loader)
