"""Where the consumer's thread of a worker spends its time, sampled by py-spy."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import NOTHING, Kind, Setup, working
from benchmarks.frame.part import Table

#: Whose code a frame is, by a part of its file's path. The first that fits counts.
_OWNERS = {
    "celery_sqs_heartbeat/": "this package",
    "billiard/": "billiard: hands tasks to processes, and reads their results",
    "celery/": "Celery: makes requests, and follows tasks",
    "kombu/": "kombu: event loop, polls and decoding",
    "vine/": "kombu: event loop, polls and decoding",
    "botocore/": "botocore: signs polls, and parses answers",
}
#: A frame of the consumer's loop, which each of the thread's samples contains.
_LOOP = "asynloop"
_FILE = re.compile(r"\(([^()]*):\d+\)$")
_RATE, _LATENCY, _PREFETCH, _WARM_SECONDS = 200, 0.02, 50, 2.0


def measure_profile(server: EndlessServer, seconds: float, folder: Path) -> Table:
    """Sample our worker while it has as much to do as it can."""
    queue = server.queue(NOTHING)
    with working(server, queue, Setup(kind=Kind.OURS, prefetch=_PREFETCH), folder) as worker:
        queue.set_latency(_LATENCY)
        queue.fill(is_endless=True)
        time.sleep(_WARM_SECONDS)
        shares = shares_of(_record(worker.pid, seconds, folder / "profile"))
    title = f"Where our worker's main thread spends its time, prefork, prefetch {_PREFETCH}"
    rows = [[owner, f"{share:.0%}"] for owner, share in shares.items()]
    return Table(f"{title}, {_LATENCY * 1000:g} ms a call", ("code of", "share"), rows)


def shares_of(stacks: Iterable[str]) -> dict[str, float]:
    """Return whose code runs how often, the most frequent first.

    Python's own code counts for its caller.

    Args:
        stacks: Lines of py-spy's raw format: frames from the outside, then how often.
    """
    found: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if any(_LOOP in frame for frame in frames):
            found[_owner_of(frames)] += int(count)
    total = sum(found.values())
    return {owner: count / total for owner, count in found.most_common()}


def _owner_of(frames: list[str]) -> str:
    for frame in reversed(frames):
        file = _FILE.search(frame)
        path = file.group(1) if file else ""
        for part, owner in _OWNERS.items():
            if part in path:
                return owner
    return "other"


def _record(pid: int, seconds: float, path: Path) -> list[str]:
    """Sample a process's threads while they run. Return the stacks.

    Raises:
        RuntimeError: py-spy may not look into another process on this machine.
    """
    spy = Path(sys.executable).with_name("py-spy")
    options = ("--gil", "--format", "raw", "--rate", str(_RATE), "--duration", str(round(seconds)))
    done = subprocess.run(
        [spy, "record", "--pid", str(pid), *options, "--output", path],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"py-spy can't sample process {pid}: {done.stderr.strip()}")
    return path.read_text().splitlines()
