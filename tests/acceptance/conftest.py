"""Servers, proxies and workers for tests of a real worker on a real queue."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.promises import FOLDER, named, promised
from tests.acceptance.scene import Scene, StartWorker
from tests.support.proxy import FaultProxy
from tests.support.recording import describe_calls, rerun_command
from tests.support.stalls import Stall, StallWatch
from tests.support.workers import ProcessWorker, launch, tail

#: Needs the driver of a browser, which the environments of other versions lack.
APART = "test_status_page.py::"

_WORKERS = pytest.StashKey[list[ProcessWorker]]()

Report = pytest.TestReport | pytest.CollectReport


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave tests that are not named in full to `make test-all`. Refuse one that is not named.

    The others must also pass with other versions.
    """
    name = item.nodeid.removeprefix(FOLDER)
    if name.partition("[")[0] not in named():
        raise pytest.UsageError(f"{item.nodeid} is not in {FOLDER}promises.py: name its promise")
    if name not in promised():
        item.add_marker("thorough")
    elif not name.startswith(APART):
        item.add_marker("versions")


@pytest.fixture
def start_worker(
    request: pytest.FixtureRequest, tmp_path: Path, proxy: FaultProxy
) -> Iterator[StartWorker]:
    """Start workers that go through the proxy; all their processes end with the test.

    They are forked from a process that has imported Celery, unless the test is marked `fresh`.
    """
    workers = request.node.stash.setdefault(_WORKERS, [])

    def start(
        app: str, args: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> ProcessWorker:
        worker = launch(
            f"worker{len(workers) + 1}",
            app=app,
            args=args,
            env={"CELERY_BROKER_URL": proxy.broker_url, **(env or {})},
            log_dir=tmp_path,
            fresh=request.node.get_closest_marker("fresh") is not None,
        )
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.teardown()


@pytest.fixture
def stalls() -> Iterator[Sequence[Stall]]:
    """The times in which this process, and the proxy in it, stalled."""
    seen: list[Stall] = []
    watch = StallWatch(seen.append)
    watch.start()
    yield seen
    watch.stop()


@pytest.fixture
def new_scene(
    proxy: FaultProxy, start_worker: StartWorker, tmp_path: Path, stalls: Sequence[Stall]
) -> Callable[..., Scene]:
    """Make a new queue, with the means to work on it."""
    return functools.partial(Scene, proxy, start_worker, tmp_path, stalls)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
    """Count a skipped test as failed. For a failed one, show logs, calls, and how to rerun it."""
    report: pytest.TestReport = yield
    _refuse_skip(report)
    if report.failed:
        for worker in item.stash.get(_WORKERS, []):
            report.sections.append((f"Log of {worker.process.name}", tail(worker.logs())))
        if isinstance(proxy := getattr(item, "funcargs", {}).get("proxy"), FaultProxy):
            report.sections.append(("Calls at SQS", describe_calls(proxy.calls())))
        report.sections.append(("Run it again", rerun_command(item.nodeid)))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, pytest.CollectReport]:
    """Count a module that skips itself as failed."""
    report: pytest.CollectReport = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: Report) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped. An acceptance test that does not run proves nothing, "
            f"so this counts as a failure. {reason}"
        )
