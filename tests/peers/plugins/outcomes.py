"""Writes the result of each test, as JSON, to the file that `PEERS_OUTCOMES` names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_ROWS: dict[str, tuple[str, str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how the test's call ended, or what failed or was skipped around it."""
    failed_before = _ROWS.get(report.nodeid, ("",))[0] == "failed"
    if not failed_before and (report.when == "call" or report.outcome != "passed"):
        _ROWS[report.nodeid] = (report.outcome, _error(report))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a module that could not be collected."""
    if report.failed:
        _ROWS[report.nodeid] = (report.outcome, _error(report))


def pytest_sessionfinish() -> None:
    """Write all of it."""
    Path(os.environ["PEERS_OUTCOMES"]).write_text(json.dumps(_ROWS, indent=1))


def _error(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longreprtext if report.failed else ""
