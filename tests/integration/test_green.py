"""The keeper in a process whose threads and sockets are gevent's or eventlet's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.waiting import PATIENCE
from tests.support.workers import ROOT

pytestmark = pytest.mark.parametrize("library", ["gevent", "eventlet"])


def run(library: str, scenario: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.patched", library, scenario],
        cwd=ROOT,
        capture_output=True,
        text=True,
        # The scenario itself waits, and tells what did not happen.
        timeout=3 * PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_keepers_threads_leave_log_lines_to_the_hub_whose_handlers_they_are(
    library: str,
) -> None:
    assert run(library, "logs") == {"written": {"apart": True, "here": True}, "threads": 1}


def test_threads_of_the_keepers_ask_who_they_are_while_greenlets_start(library: str) -> None:
    assert run(library, "strangers") == {"told": 300, "greeted": 300}


def test_extensions_go_on_while_nothing_yields_and_a_flush_lets_others_run(library: str) -> None:
    result = run(library, "keeping")
    assert result.pop("meanwhile") >= 3
    assert result == {
        "apart": True,
        "flushed": True,
        "ticked": True,
        "deletes": 3,
        "alive": False,
    }


def test_other_jobs_run_with_the_tasks_in_order(library: str) -> None:
    assert run(library, "jobs") == {"in order": True, "here": True}


def test_a_keeper_that_has_ended_leaves_nothing_open(library: str) -> None:
    assert run(library, "ending") == {"files": 0, "named": [], "calls": 6}


def test_each_thread_has_clients_of_its_own(library: str) -> None:
    assert run(library, "clients") == {"here": True, "there": False}
