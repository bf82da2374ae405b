"""Every behaviour on every server, and the table of known differences."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from tests.conformance.servers.target import KNOWN, MEASURED, Target, targets

_TARGETS = pytest.StashKey[list[Target]]()
_VERDICTS = pytest.StashKey[dict[str, "Future[object]"]]()
#: How many behaviours of a server are tested side by side: most of their time is waiting. moto
#: serves all its queues from one state without locks. With calls side by side, it sometimes
#: behaves differently.
_WIDTH, _NARROW = 6, {"moto": 1}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the comparison of servers to `make test-all`."""
    item.add_marker("thorough")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each behaviour all servers."""
    if "server" in metafunc.fixturenames:
        assert metafunc.function.__doc__, f"{metafunc.function.__name__} names no source"
        stash = metafunc.config.stash
        if _TARGETS not in stash:
            stash[_TARGETS] = targets()
        found = stash[_TARGETS]
        metafunc.parametrize("server", found, ids=[target.name for target in found])


def _begin_all(items: list[pytest.Item]) -> dict[str, Future[object]]:
    """Begin the tests of all servers, each server's in a few separate threads."""
    pools: dict[str, ThreadPoolExecutor] = {}
    verdicts: dict[str, Future[object]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and "server" in item.fixturenames:
            params = item.callspec.params
            name = params["server"].name
            pool = pools.setdefault(name, ThreadPoolExecutor(_NARROW.get(name, _WIDTH)))
            verdicts[item.nodeid] = pool.submit(item.function, **params)
    return verdicts


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Judge a behaviour: the server shows it, or differs as its note says."""
    if "server" not in pyfuncitem.fixturenames:
        return None
    stash = pyfuncitem.config.stash
    if _VERDICTS not in stash:
        stash[_VERDICTS] = _begin_all(pyfuncitem.session.items)
    target = pyfuncitem.callspec.params["server"]
    instead = KNOWN.get(pyfuncitem.originalname, {}).get(target.name)
    try:
        stash[_VERDICTS][pyfuncitem.nodeid].result()
    except (AssertionError, ClientError):
        if instead is None:
            raise
        return True
    if instead is not None:
        pytest.fail(
            f"the known difference is outdated: {target.name} {target.version} does as AWS does, "
            f"though the note for {MEASURED[target.name]} says: {instead}",
            pytrace=False,
        )
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the servers."""
    for verdict in session.config.stash.get(_VERDICTS, {}).values():
        verdict.cancel()
    for target in session.config.stash.get(_TARGETS, []):
        target.stop()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table."""
    if _VERDICTS not in config.stash:
        return
    terminalreporter.section("known differences from AWS")
    for target in config.stash[_TARGETS]:
        rows = [(name, by[target.name]) for name, by in KNOWN.items() if target.name in by]
        measured = MEASURED.get(target.name, target.version)
        since = f", measured with {measured}" if measured != target.version else ""
        terminalreporter.line(f"{target.name} {target.version}: {len(rows) or 'none'}{since}")
        for name, instead in rows:
            terminalreporter.line(f"    {name.removeprefix('test_').replace('_', ' ')}")
            terminalreporter.line(f"        -> {instead}")
