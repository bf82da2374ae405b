"""`python -m tests.running`: runs a group of tests, shows the cost of groups, or repeats a command.

`python -m tests.running repeat --times 10 --load 4 make test` shows how often a command fails on a
busy machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import psutil

#: The folder with the costs of the last runs, unless COSTS names another one.
FOLDER = Path(os.environ.get("COSTS", "build/costs"))
#: A run that needs this many times the CPU of the last run is reported.
MORE = 1.5
#: Below this much CPU, in seconds, differences are random.
SMALL = 5.0
#: From `linux/prctl.h`: orphans below this process become its children, so they are counted.
_PR_SET_CHILD_SUBREAPER = 36
#: How long the processes that a command leaves behind may take to end, in seconds. A JVM takes one
#: second of CPU for that, which may be minutes beside other groups.
LEFT_SECONDS = 600.0
POLL_SECONDS = 0.05
_UNPROCESSED = {"ignore_unknown_options": True}


@click.group()
def main() -> None:
    """Run groups of tests, and store what they cost."""


@main.command(context_settings=_UNPROCESSED)
@click.argument("group")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(group: str, command: tuple[str, ...]) -> None:
    """Run a group's COMMAND, and exit with its exit code.

    Wait until the processes that it leaves behind have ended. On Linux orphans count as well:
    Spark's JVM, the children of a killed worker.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    began = time.monotonic()
    process = subprocess.Popen(command)
    cpu, code = 0.0, None
    while code is None:
        pid, status, usage = os.wait4(-1, 0)
        cpu += usage.ru_utime + usage.ru_stime
        if pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    rest, left = _reap_rest()
    FOLDER.mkdir(parents=True, exist_ok=True)
    draft = FOLDER / f"{group}.draft"
    draft.write_text(json.dumps({"seconds": seconds, "cpu_seconds": cpu + rest}))
    draft.rename(FOLDER / f"{group}.json")
    for each in left:
        click.echo(f"{group} left a process behind, which was killed: {each}", err=True)
    sys.exit(code or bool(left))


def _reap_rest() -> tuple[float, list[str]]:
    """Return the CPU of the remaining processes, and the names of those that had to be killed."""
    cpu, left = 0.0, []
    deadline = time.monotonic() + LEFT_SECONDS
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
            cpu += usage.ru_utime + usage.ru_stime
            if pid:
                continue
            if time.monotonic() > deadline:
                left += [_kill(child) for child in psutil.Process().children()]
            time.sleep(POLL_SECONDS)
    return cpu, left


def _kill(process: psutil.Process) -> str:
    name = str(process.pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        name = f"{process.pid}, {' '.join(process.cmdline())[:200]}"
        process.send_signal(signal.SIGKILL)
    return name


@main.command()
@click.argument("groups", nargs=-1, required=True)
def costs(groups: tuple[str, ...]) -> None:
    """Compare the cost of GROUPS with their last run, and make this run the last one."""
    rows = [f"{'':20}{'minutes':>9}{'CPU, s':>9}{'last time':>11}"]
    reports, total = [], 0.0
    for group in groups:
        current = FOLDER / f"{group}.json"
        cost, last = _read(current), _read(FOLDER / f"{group}.last")
        if cost is None:
            rows.append(f"{group:20}{'did not run':>18}")
            continue
        seconds, cpu = cost
        total += cpu
        before = f"{last[1]:.0f}" if last else "-"
        rows.append(f"{group:20}{seconds / 60:9.1f}{cpu:9.0f}{before:>11}")
        if last and cpu > max(MORE * last[1], SMALL):
            reports.append(
                f"{group} needed {cpu / max(last[1], 0.1):.1f} times the CPU of its last run: "
                "see the slowest tests in its output"
            )
        current.rename(FOLDER / f"{group}.last")
    click.echo("\n".join([*rows, f"{'all':20}{'':9}{total:9.0f}", *reports]))


def _read(path: Path) -> tuple[float, float] | None:
    """Return the stored seconds and CPU seconds; None if there are none, or none to read."""
    try:
        stored = json.loads(path.read_text())
        cost = float(stored["seconds"]), float(stored["cpu_seconds"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return cost if min(cost) >= 0 else None


@main.command(context_settings=_UNPROCESSED)
@click.option("--times", type=click.IntRange(1), default=10, show_default=True)
@click.option("--load", "busy", type=click.IntRange(0), default=0, metavar="PROCESSES")
@click.option(
    "--stalls",
    "longest",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Stop all processes for random times of up to SECONDS, half of the time.",
)
@click.option(
    "--logs", type=click.Path(path_type=Path), default=Path("build/repeated"), show_default=True
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def repeat(times: int, busy: int, longest: float, logs: Path, command: tuple[str, ...]) -> None:
    """Run COMMAND repeatedly: beside other processes, or with stalls. Count how often it fails."""
    logs.mkdir(parents=True, exist_ok=True)
    failures = 0
    with load(busy), stalls(longest):
        for number in range(1, times + 1):
            log, began = logs / f"{number}.log", time.monotonic()
            with log.open("wb") as output:
                code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
            failures += code != 0
            how = f"FAILED with {code}" if code else "passed"
            click.echo(f"{number}: {how} in {(time.monotonic() - began) / 60:.1f} minutes; {log}")
    click.echo(f"{failures} of {times} failed")
    sys.exit(bool(failures))


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Run so many processes that compute endlessly."""
    busy = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(busy) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def stalls(longest: float) -> Iterator[None]:
    """Stop this process's descendants for random times, which add up to half of the run.

    A busy host does that to a virtual machine. A test that relies on a time limit fails in such a
    run, and an idle machine hides it. On a busy one (`load`) everything becomes slower, but nothing
    stops for seconds.

    A process that a test has stopped itself stays stopped, unless the test stops it at the very
    moment at which a stall begins.

    Args:
        longest: The longest stall in seconds, and the longest time between two; 0 for no stalls.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_stall_until, args=(ended, longest), daemon=True)
    if longest:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if longest:
            thread.join()


def _stall_until(ended: threading.Event, longest: float) -> None:
    while not ended.wait(random.uniform(0, longest)):
        stopped = _stop_all()
        ended.wait(random.uniform(0, longest))
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _stop_all() -> Sequence[psutil.Process]:
    """Stop all descendants, and return those that were running.

    Those that were started meanwhile are stopped, too: a stopped process starts no others, so this
    ends.
    """
    seen: set[psutil.Process] = set()
    stopped: list[psutil.Process] = []
    while new := set(psutil.Process().children(recursive=True)) - seen:
        seen |= new
        stopped += [process for process in new if _stop(process)]
    return stopped


def _stop(process: psutil.Process) -> bool:
    """Stop a process, and return whether it was running."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            process.suspend()
            return True
    return False


if __name__ == "__main__":
    main()
