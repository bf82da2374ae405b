"""Which Pythons `python -m tests.pythons` finds, and what it reports about missing ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import pythons
from tests.support import interpreters

#: A version that no machine has, so none of this machine's Pythons is found.
VERSION = "3.99"
SHIM_FAILS = "echo 'not chosen' >&2; exit 127"


def says(text: str) -> str:
    return f"echo '{text}'"


def pyenv(names: str) -> str:
    """A pyenv that has these versions, each in the folder of its name."""
    own = 'case "$1" in versions) printf "%s\\n" {0};; prefix) echo "${{0%/*}}/../$2";; esac'
    return own.format(names)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"path/python3.99": says("3.99")}, "path/python3.99"),
        ({"path/python3.99": says("3.98")}, None),
        ({"path/python3.99": SHIM_FAILS}, None),
        ({"path/pyenv": pyenv("3.9.1 3.98.0"), "3.98.0/bin/python3.98": says("3.98")}, None),
        (
            {"path/pyenv": pyenv("3.9.9 3.99.1"), "3.99.1/bin/python3.99": says("3.99")},
            "path/../3.99.1/bin/python3.99",
        ),
        (
            {"path/pyenv": pyenv("3.99"), "3.99/bin/python3.99": says("3.99")},
            "path/../3.99/bin/python3.99",
        ),
        (
            {"path/pyenv": pyenv("pypy3.99-7"), "pypy3.99-7/bin/python3.99": says("3.99")},
            None,
        ),
        (
            {
                "path/python3.99": SHIM_FAILS,
                "path/pyenv": pyenv("3.99.1 3.99.2"),
                "3.99.2/bin/python3.99": says("3.99"),
            },
            "path/../3.99.2/bin/python3.99",
        ),
        ({"path/uv": 'echo "${0%/*}/../uvs"', "uvs": says("3.99")}, "path/../uvs"),
        ({"path/uv": "exit 2", "uvs": says("3.99")}, None),
        ({"path/pyenv": "exit 1", "path/uv": says("")}, None),
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
    assert interpreters.find(VERSION) == (found and str(tmp_path / found))


def test_the_running_python_is_found() -> None:
    assert interpreters.find(interpreters.RUNNING) == sys.executable


def test_the_supported_ones_are_those_of_the_classifiers() -> None:
    project = pythons.PROJECT.read_text()
    assert "3.10" in interpreters.supported(project)
    assert interpreters.supported(
        '"Programming Language :: Python :: 3",\n"Programming Language :: Python :: 3.14",'
    ) == ["3.14"]


def test_the_tests_that_are_run_and_left_out_exist() -> None:
    paths = [path.removeprefix("--ignore=") for path in pythons.TESTS]
    assert [path for path in paths if not (pythons.ROOT / path).exists()] == []


ABSENT = "Python 3.14 is not on this machine: not run"


@pytest.mark.parametrize(
    ("on_machine", "failing", "arguments", "lines", "exit_code"),
    [
        (["3.10"], [], [], ["Python 3.10: passed in 0 s", ABSENT], 0),
        (["3.10", "3.14"], ["3.10"], [], ["3.10: FAILED in 0 s", "3.14: passed in 0 s"], 1),
        ([], [], [], [ABSENT, "No other Python than 3.11 was found"], 0),
        ([], [], ["--only", "3.14"], [ABSENT, "No other Python than 3.11 was found"], 1),
        (["3.10", "3.14"], ["3.14"], ["--only", "3.10"], ["3.10: passed"], 0),
        (["3.8"], [], ["--only", "3.8"], ["3.8; supported are 3.10, 3.14"], 2),
    ],
)
def test_each_python_has_a_line_and_a_missing_one_is_not_a_failure(
    on_machine: list[str],
    failing: list[str],
    arguments: list[str],
    lines: list[str],
    exit_code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pythons, "RUNNING", "3.11")
    monkeypatch.setattr(pythons, "supported", lambda project: ["3.10", "3.14"])
    monkeypatch.setattr(
        pythons, "find", lambda version: f"/python{version}" if version in on_machine else None
    )
    monkeypatch.setattr(
        pythons, "run", lambda python, venv, arguments: venv.name[6:] not in failing
    )
    done = CliRunner().invoke(pythons.main, arguments)
    assert done.exit_code == exit_code
    for line in lines:
        assert line in done.output


def test_the_running_python_is_left_out_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(pythons, "find", lambda version: f"/python{version}")
    monkeypatch.setattr(pythons, "run", lambda python, venv, arguments: bool(ran.append(python)))
    CliRunner().invoke(pythons.main)
    assert f"/python{pythons.RUNNING}" not in ran
    CliRunner().invoke(pythons.main, ["--only", pythons.RUNNING])
    assert ran[-1] == f"/python{pythons.RUNNING}"


def test_a_virtual_environment_is_rebuilt_only_if_the_project_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "pyproject.toml"
    project.touch()
    commands: list[list[str]] = []
    monkeypatch.setattr(pythons, "PROJECT", project)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    venv = tmp_path / ".venv-3.99"
    venv.mkdir()
    pythons.prepare("/python3.99", venv)
    assert commands[0] == ["/python3.99", "-m", "venv", str(venv)]
    assert commands[-1][-2:] == ["--group", "test-pythons"]
    made = len(commands)
    later = time.time() + 10
    os.utime(venv / pythons.STAMP, (later, later))
    pythons.prepare("/python3.99", venv)
    assert len(commands) == made
    os.utime(project, (later + 10, later + 10))
    pythons.prepare("/python3.99", venv)
    assert len(commands) > made
