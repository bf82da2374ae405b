"""Shares a suite's tests among parallel pytest processes: a free process claims the next test.

So they end at about the same time, and no one needs to know how long a test takes. A claim is a
file in the folder that `PEERS_CLAIMS` names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


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
