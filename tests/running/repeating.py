"""Runs a command repeatedly, and counts how often it fails."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def repeat(command: Sequence[str], times: int, logs: Path, say: Callable[[str], object]) -> int:
    """Run a command several times, one after the other, and return how often it failed.

    Args:
        logs: The folder for the output of each run: `1.log` and so on.
        say: Called with a line about each run.
    """
    logs.mkdir(parents=True, exist_ok=True)
    failures = 0
    for number in range(1, times + 1):
        log = logs / f"{number}.log"
        began = time.monotonic()
        with log.open("wb") as output:
            code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
        failures += code != 0
        how = f"FAILED with {code}" if code else "passed"
        say(f"{number}: {how} in {(time.monotonic() - began) / 60:.1f} minutes; {log}")
    return failures
