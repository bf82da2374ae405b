"""Runs the behaviours of all servers side by side: most of their time is waiting."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.conformance.servers.target import Target

#: Behaviours of one server at a time.
WIDTH = 6
#: moto serves all its queues from one state without locks. With calls side by side, it
#: sometimes behaves differently.
NARROW = {"moto": 1}


def target_of(item: pytest.Item) -> Target | None:
    """Return the server that a test is of."""
    callspec = getattr(item, "callspec", None)
    server = callspec.params.get("server") if callspec else None
    return server if isinstance(server, Target) else None


def _threads(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(NARROW.get(name.split()[0], WIDTH))


class Lanes:
    """Calls the functions of the tests, each server's in a few separate threads."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._verdicts: dict[str, Future[object]] = {}
        for item in items:
            target = target_of(item)
            if target is not None and isinstance(item, pytest.Function):
                pool = self._pools.setdefault(target.name, _threads(target.name))
                self._verdicts[item.nodeid] = pool.submit(item.function, server=target)

    def wait_for(self, item: pytest.Item) -> None:
        """Return once the test has passed, or raise what it raised."""
        self._verdicts[item.nodeid].result()

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
