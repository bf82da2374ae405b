"""The tools by which `make` judges can fail: a group, a Python, a late extension, a size."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import running, size
from tests.acceptance.lateness import late_extensions
from tests.support.markdown import ROOT
from tests.support.recording import CHANGE, Call

#: An orphan that uses half a second of CPU, while its parent fails.
ORPHAN = """
import subprocess, sys
code = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.Popen([sys.executable, "-c", code])
sys.exit(5)
"""
#: Leaves a process behind.
STAYS = "import subprocess; subprocess.Popen(['sleep', '600'])"


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


def call(operation: str, at: float, **more: Any) -> Call:
    fields: dict[str, Any] = {"body": {}, "answered_at": at + 0.5, "status": 200, **more}
    return Call(operation=operation, started_at=at, forwarded_at=at, **fields)


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


def test_each_size_out_of_its_limits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"core": (1, 10**6), "package": (10**6, 1), "tests": (10**6, 10**6)}
    monkeypatch.setattr(size, "LIMITS", limits)
    monkeypatch.setattr(size, "tests", list)
    for name, limit in (("LONGEST_FILE", 10), ("MEAN_COMPLEXITY", 1.0), ("ASSET_LINES", 1)):
        monkeypatch.setattr(size, name, limit)
    with pytest.raises(SystemExit) as caught:
        size.main()
    for said in (
        r"core has \d+ files, \d+ above its limit",
        r"core has only [\d,]+ lines: lower the limit",
        r"package has only \d+ files: lower the limit",
        r"package has [\d,]+ lines, [\d,]+ above its limit",
        r"tests has only 0 files: lower the limit",
        r"worker/step.py has \d+ lines, at most 10 are allowed",
        r"a complexity of .*, at most 1.0 is allowed",
        r"the assets have .*, at most 1 are allowed",
    ):
        assert re.search(said, str(caught.value))


def test_the_core_is_what_a_worker_loads_at_once_or_late() -> None:
    core = {path.relative_to(size.PACKAGE).as_posix() for path in size.core()}
    assert {"worker/step.py", "keeper/__main__.py", "observe/otel.py"} <= core
    assert not {path for path in core if path.startswith(("pipeline/", "cli/", "testing/"))}
