"""The tools by which `make` judges the tests can fail: a group, a Python, a late extension."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import running, versions
from tests.acceptance.lateness import late_extensions
from tests.support.markdown import ROOT
from tests.support.recording import CHANGE, Call, describe_calls, rerun_command
from tests.support.stalls import Stall, stood_still

#: An orphan that uses half a second of CPU, while its parent fails.
ORPHAN = """
import subprocess, sys
code = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.Popen([sys.executable, "-c", code])
sys.exit(5)
"""
#: Leaves a process behind.
STAYS = "import subprocess; subprocess.Popen(['sleep', '600'])"
#: Fails the second time that it runs.
SECOND_FAILS = """
import pathlib, sys
runs = pathlib.Path(sys.argv[-1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
print("run", len(runs.read_text()))
sys.exit(len(runs.read_text()) == 2)
"""


def run(*arguments: str | Path, code: str, left_seconds: float = 600.0) -> Any:
    """Run a tool in its own process, of which all that is left behind becomes a child."""
    main = f"from tests import running; running.LEFT_SECONDS = {left_seconds}; running.main()"
    command = [sys.executable, "-c", main, *map(str, arguments), sys.executable, "-W", "ignore"]
    folder = next(each for each in arguments if isinstance(each, Path))
    command.remove(str(folder))
    command += ["-c", code, str(folder / "runs")]
    env = {"COSTS": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def test_a_group_has_its_commands_exit_code_and_the_cpu_of_orphans_beside_its_last_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FOLDER", tmp_path)

    def costs() -> str:
        return CliRunner().invoke(running.main, ["costs", "core"]).output

    assert "did not run" in costs()
    assert run("run", "core", tmp_path, code=ORPHAN).returncode == 5
    assert float(costs().splitlines()[1].split()[2]) >= 0.5
    for seconds, last, shown in (
        (100, '{"seconds": "x"}', "-"),
        (160, None, "100"),
        (100, None, "160"),
    ):
        (tmp_path / "core.json").write_text(f'{{"seconds": 90, "cpu_seconds": {seconds}}}')
        if last:
            (tmp_path / "core.last").write_text(last)
        output = costs()
        assert output.splitlines()[1].split() == ["core", "1.5", str(seconds), shown]
        assert ("core needed 1.6 times the CPU of its last run" in output) is (seconds == 160)


def test_a_group_that_leaves_a_process_behind_fails(tmp_path: Path) -> None:
    done = run("run", "core", tmp_path, code=STAYS, left_seconds=0.2)
    assert (done.returncode, "sleep 600" in done.stderr) == (1, True), done.stderr


def test_a_repeated_commands_failures_are_counted_and_its_output_is_kept(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    options = ["--times", "3", "--load", "1", "--stalls", "0.1", f"--logs={logs}"]
    done = run("repeat", *options, tmp_path, code=SECOND_FAILS)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 of 3 failed"), done.stderr
    assert [log.read_text() for log in sorted(logs.iterdir())] == ["run 1\n", "run 2\n", "run 3\n"]


PYENV = 'case "$1" in versions) echo 3.99.1;; prefix) echo "${0%/*}/../$2";; esac'


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"path/python3.99": "echo 3.99"}, "path/python3.99"),
        (
            {
                "path/python3.99": "echo 'not chosen' >&2; exit 127",
                "path/pyenv": PYENV,
                "3.99.1/bin/python3.99": "echo 3.99",
            },
            "path/../3.99.1/bin/python3.99",
        ),
        ({"path/uv": 'echo "${0%/*}/../uvs"', "uvs": "echo 3.99"}, "path/../uvs"),
    ],
)
def test_a_python_is_found_where_it_runs_and_reports_its_version(
    files: Mapping[str, str], found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert versions.find("3.99") == (found and str(tmp_path / found))


@pytest.mark.parametrize(
    ("here", "failing", "arguments", "lines", "exit_code"),
    [
        (["3.10", "3.12", "3.13"], [], [], ["oldest (Python 3.10): passed in 0 s"], 0),
        (["3.10", "3.12"], [], [], ["newest (Python 3.11 because 3.13 is not here): passed"], 0),
        (["3.10", "3.12"], ["oldest"], [], ["(Python 3.10): FAILED in 0 s", "(Python 3.12): p"], 1),
        (["3.10", "3.12"], ["newest"], ["--only", "between"], ["between (Python 3.12): passed"], 0),
    ],
)
def test_each_environment_has_a_line_and_none_is_left_out_because_its_python_is_missing(
    here: list[str],
    failing: list[str],
    arguments: list[str],
    lines: list[str],
    exit_code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "RUNNING", "3.11")
    monkeypatch.setattr(versions, "find", lambda version: version if version in here else None)
    monkeypatch.setattr(versions, "run", lambda row, python, arguments: row.name not in failing)
    done = CliRunner().invoke(versions.main, arguments)
    assert done.exit_code == exit_code
    assert [line for line in lines if line not in done.output] == []


def call(operation: str, at: float, **more: Any) -> Call:
    fields: dict[str, Any] = {"body": {}, "answered_at": at + 0.5, "status": 200, **more}
    return Call(operation=operation, started_at=at, forwarded_at=at, **fields)


def test_the_calls_of_a_failed_test_are_described_by_message_and_receive() -> None:
    message = {
        "MessageId": "0123456789",
        "ReceiptHandle": "h1",
        "Attributes": {"ApproximateReceiveCount": "2"},
    }
    deletes = [{"Id": "0", "ReceiptHandle": "h1"}, {"Id": "1", "ReceiptHandle": "a-long-handle"}]
    failed = {"Failed": [{"Id": "1", "Code": "ReceiptHandleIsInvalid"}]}
    described = describe_calls(
        [
            call("ReceiveMessage", 10, answer={"Messages": [message]}),
            call("ReceiveMessage", 10.5, answer={}),
            call("DeleteMessageBatch", 12, body={"Entries": deletes}, answer=failed),
            call("ReceiveMessage", 13, status=None, answered_at=None),
        ]
    )
    assert described.splitlines() == [
        "    0.000 ReceiveMessage: 01234567, receive 2 (200 after 0.500 s)",
        "    2.000 DeleteMessageBatch: 01234567, receive 2 (200 after 0.500 s)",
        "    2.000 DeleteMessageBatch: handle a-long-h: ReceiptHandleIsInvalid (200 after 0.500 s)",
        "    3.000 ReceiveMessage: (not answered)",
    ]
    assert rerun_command("tests/x.py::test_y[a b]").endswith(" -m pytest 'tests/x.py::test_y[a b]'")


@pytest.mark.parametrize(
    ("stalls", "expected"),
    [
        ([Stall(15, 2)], 2),
        pytest.param([Stall(11, 4), Stall(22, 4)], 3, id="over both ends"),
        pytest.param([Stall(16, 2), Stall(15, 3)], 4, id="overlapping"),
    ],
)
def test_time_in_which_several_processes_are_stalled_counts_once(
    stalls: list[Stall], expected: float
) -> None:
    assert stood_still(stalls, 10, 20) == expected


@pytest.mark.parametrize(
    ("extended_at", "answered_after", "late"),
    [
        ([103, 106], 0.01, []),
        ([103, 108], 0.01, [1]),
        pytest.param([103, 108], 2.0, [], id="late because the server was late"),
        pytest.param([103, 108], 0.5, [1], id="later than the server"),
    ],
)
def test_an_extension_is_late_if_its_lease_had_expired_and_nothing_was_stalled(
    extended_at: list[float], answered_after: float, late: list[float]
) -> None:
    received = {"Messages": [{"ReceiptHandle": "h"}]}
    entry = {"Id": "1", "ReceiptHandle": "h", "VisibilityTimeout": 4}
    calls = [call("ReceiveMessage", 99, answered_at=100.0, answer=received)]
    for at in extended_at:
        answer = {"answered_at": at + answered_after, "answer": {"Successful": [{"Id": "1"}]}}
        calls.append(call(CHANGE, at, body={"Entries": [entry]}, **answer))
    assert late_extensions(calls, 4, []) == late
