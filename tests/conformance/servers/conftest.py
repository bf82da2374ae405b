"""Every behaviour on every server, and the table of known differences."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.conformance.servers.differences import KNOWN
from tests.conformance.servers.lanes import Lanes, target_of
from tests.conformance.servers.target import Target, targets

_TARGETS = pytest.StashKey[list[Target]]()
_LANES = pytest.StashKey[Lanes]()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the comparison of servers to `make test-all`."""
    item.add_marker("thorough")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each behaviour all servers."""
    if "server" in metafunc.fixturenames:
        stash = metafunc.config.stash
        if _TARGETS not in stash:
            stash[_TARGETS] = targets()
        found = stash[_TARGETS]
        metafunc.parametrize("server", found, ids=[target.name for target in found])


@pytest.fixture
def simulated() -> Iterator[SimulatedServer]:
    """Only the simulation, for behaviours that the others can't show."""
    with SimulatedServer() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Judge a behaviour: the server shows it, or differs as the table says."""
    target = target_of(pyfuncitem)
    if target is None:
        return None
    stash = pyfuncitem.config.stash
    if _LANES not in stash:
        stash[_LANES] = Lanes(pyfuncitem.session.items)
    difference = KNOWN.get(pyfuncitem.originalname, {}).get(target.name)
    try:
        stash[_LANES].wait_for(pyfuncitem)
    except (AssertionError, ClientError):
        if difference is None:
            raise
        return True
    if difference is not None:
        pytest.fail(
            f"the table of known differences is outdated: {target.name} {target.version} does "
            f"as AWS does, though differences.py says of {difference.measured}: "
            f"{difference.instead}",
            pytrace=False,
        )
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the servers."""
    if lanes := session.config.stash.get(_LANES, None):
        lanes.close()
    for target in session.config.stash.get(_TARGETS, []):
        target.stop()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table."""
    if _LANES not in config.stash:
        return
    terminalreporter.section("known differences from AWS")
    for target in config.stash[_TARGETS]:
        rows = [(name, by[target.name]) for name, by in KNOWN.items() if target.name in by]
        terminalreporter.line(f"{target.name} {target.version}: {len(rows) or 'none'}")
        for name, difference in rows:
            behaviour = name.removeprefix("test_").replace("_", " ")
            since = f" [{difference.measured}]" if difference.measured != target.version else ""
            terminalreporter.line(f"    {behaviour}")
            terminalreporter.line(f"        -> {difference.instead}{since}")
