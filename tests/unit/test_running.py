"""Groups of tests: their cost is measured, stored and compared with the last run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.running.costs import Cost, read, show, take_over
from tests.support.markdown import ROOT
from tests.support.waiting import wait_until

#: An orphan that uses half a second of CPU.
ORPHAN = """
import subprocess, sys
code = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.Popen([sys.executable, "-c", code])
"""


def run(folder: Path, *arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    runs = [sys.executable, "-c", code] if code else []
    return subprocess.run(
        [sys.executable, "-m", "tests.running", *arguments, *runs],
        cwd=ROOT,
        env={"COSTS": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("code", [0, 1, 5])
def test_a_run_ends_with_its_commands_exit_code(code: int, tmp_path: Path) -> None:
    assert run(tmp_path, "run", "core", code=f"raise SystemExit({code})").returncode == code


def test_orphans_count(tmp_path: Path) -> None:
    assert run(tmp_path, "run", "core", code=ORPHAN).returncode == 0
    cost = read(tmp_path / "core.json")
    assert cost is not None
    assert cost.cpu_seconds > 0.5


def test_a_cost_is_shown_beside_that_of_the_last_run(tmp_path: Path) -> None:
    Cost(seconds=90, cpu_seconds=100).write(tmp_path, "core")
    assert "core                      1.5      100          -" in show(tmp_path, ["core"])
    take_over(tmp_path, ["core"])
    assert "did not run" in show(tmp_path, ["core"])
    Cost(seconds=60, cpu_seconds=140).write(tmp_path, "core")
    shown = show(tmp_path, ["core"])
    assert "core                      1.0      140        100" in shown
    assert "times the CPU" not in shown


def test_fifty_percent_more_cpu_is_reported(tmp_path: Path) -> None:
    Cost(seconds=90, cpu_seconds=100).write(tmp_path, "core")
    take_over(tmp_path, ["core"])
    Cost(seconds=90, cpu_seconds=151).write(tmp_path, "core")
    assert "core needed 1.5 times the CPU of its last run" in show(tmp_path, ["core"])


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"seconds": "x"}', '{"seconds": -1, "cpu_seconds": 0}']
)
def test_a_file_that_cant_be_read_counts_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "core.last").write_text(text)
    assert read(tmp_path / "core.last") is None


def test_processes_that_a_group_leaves_running_are_killed_and_named() -> None:
    stay = "import time; time.sleep(600)"
    leave = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {stay!r}])"
    code = (
        "import sys; from tests.running import group; group.LEFT_SECONDS = 0.2; "
        f"print(group.run_group([sys.executable, '-W', 'ignore', '-c', {leave!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert stay in done.stdout, done.stderr


#: Fails the second time that it runs.
SECOND_FAILS = """
import pathlib, sys
runs = pathlib.Path(sys.argv[-1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
print("run", len(runs.read_text()))
sys.exit(len(runs.read_text()) == 2)
"""


def test_a_repeated_commands_failures_are_counted_and_its_output_is_kept(
    tmp_path: Path,
) -> None:
    code = [sys.executable, "-c", SECOND_FAILS, str(tmp_path / "runs")]
    logs = tmp_path / "logs"
    done = run(tmp_path, "repeat", "--times", "3", "--load", "1", "--logs", str(logs), *code)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 of 3 failed")
    assert [log.read_text() for log in sorted(logs.iterdir())] == ["run 1\n", "run 2\n", "run 3\n"]


def test_a_quota_limits_the_command_or_says_what_it_needs(tmp_path: Path) -> None:
    """The machine may not allow a control group. Running at full speed without a word is wrong."""
    busy = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"]
    arguments = ("repeat", "--times", "1", "--quota", "0.05", "--logs", str(tmp_path), *busy)
    began = time.monotonic()
    done = run(tmp_path, *arguments)
    if done.returncode:
        assert "--quota needs to make a control group" in done.stderr
    else:
        share = 0.2 / (time.monotonic() - began)
        assert share < 0.1 * (os.cpu_count() or 1)


def test_stalls_stop_a_command_and_continue_it(tmp_path: Path) -> None:
    arguments = ["repeat", "--times", "1", "--stalls", "0.2", "--logs", str(tmp_path)]
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    command = [sys.executable, "-m", "tests.running", *arguments, *sleep]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        wait_until(psutil.Process(process.pid).children)
        (stalled,) = psutil.Process(process.pid).children()
        for state in [psutil.STATUS_STOPPED, psutil.STATUS_SLEEPING] * 3:
            wait_until(lambda state=state: stalled.status() == state)
        stalled.kill()
    assert process.returncode == 1


#: Prints the state of a child that it has stopped itself, after three stalls of another one.
STOPPED_BEFORE = """
import psutil, sys
from tests.running.stalls import stalls
from tests.support.waiting import wait_until
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
stalled, stopped = psutil.Popen(sleep), psutil.Popen(sleep)
stopped.suspend()
wait_until(lambda: stopped.status() == "stopped")
with stalls(0.2):
    for state in ["stopped", "sleeping"] * 3:
        wait_until(lambda: stalled.status() == state)
print(stopped.status())
for child in (stalled, stopped):
    child.kill()
    child.wait()
"""


def test_stalls_do_not_continue_a_process_that_was_stopped_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_BEFORE], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("stopped\n", "")
