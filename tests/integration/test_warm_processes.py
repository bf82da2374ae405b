"""A process forked from a warm one behaves as the same command in a fresh interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until
from tests.support.warm.client import Forked, run_forked
from tests.support.workers import start_fresh

#: Prints what a process sees of itself. Names that differ from run to run are omitted.
TELL = """
import json, os, random, signal, sys, tempfile, threading, uuid

print(json.dumps({
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "path": sys.path[:2],
    "env": {name: value for name, value in os.environ.items() if name != "LC_CTYPE"},
    "main": __name__,
    "leads its session": os.getsid(0) == os.getpid(),
    "files": sorted(os.listdir("/proc/self/fd"))[:4],
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGCHLD, signal.SIGTERM)],
    "threads": threading.active_count(),
    "tempdir": tempfile.gettempdir(),
    "stdin": sys.stdin.read(),
    "random": [random.random(), str(uuid.uuid4())],
}))
print("to the end", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    first = tmp_path / "first"
    first.mkdir()
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(first), "TMPDIR": str(tmp_path), "A": "1"}


@pytest.mark.parametrize("how", [["tell.py"], ["-m", "tell"]], ids=["script", "module"])
def test_a_forked_process_sees_what_a_fresh_one_sees(
    how: list[str], env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    command = [sys.executable, *how, "-x", "two words"]
    forked, again = (run_forked(command, env=env, cwd=tmp_path) for _ in "ab")
    fresh = subprocess.run(
        command,
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert (forked.returncode, forked.stderr) == (fresh.returncode, fresh.stderr)
    seen, other, expected = (json.loads(each.stdout) for each in (forked, again, fresh))
    assert not {*seen.pop("random")} & {*other.pop("random")} & {*expected.pop("random")}
    # Python gives the whole path of a module only for `-m`.
    seen["argv"][0], expected["argv"][0] = (Path(each["argv"][0]).stem for each in (seen, expected))
    assert seen == expected


@pytest.mark.parametrize("start", [Forked, start_fresh], ids=["forked", "fresh"])
def test_a_process_can_be_polled_waited_for_and_signalled(
    start: type[Forked], env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "stay.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = start([sys.executable, "stay.py"], env, tmp_path, file)
    wait_until(lambda: log.read_text() == "up\n")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == process.poll() == -signal.SIGTERM
    process.send_signal(signal.SIGTERM)


def test_all_forked_processes_end_with_the_process_that_requested_them(tmp_path: Path) -> None:
    (tmp_path / "stay.py").write_text("import time; time.sleep(600)")
    code = (
        "import os, sys, signal; from pathlib import Path; "
        "from tests.support.warm.client import Forked; "
        "here = Path(sys.argv[1]); "
        "forked = Forked([sys.executable, 'stay.py'], dict(os.environ), here, sys.stderr.buffer); "
        "print(forked.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    wait_until(lambda: not psutil.pid_exists(pid))
