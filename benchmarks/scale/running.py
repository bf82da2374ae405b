"""Runs the keepers and the other measurements in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.scale.kept import Kept

#: One round: each keeper by the number of its leases.
Round = dict[int, Kept]


def compare_calls(url: str, calls: int, rounds: int) -> list[tuple[float, float]]:
    """Return for each round the CPU ms of a call as a keeper makes it, and by boto3."""
    output = _output("calling", url, str(calls), str(rounds))
    return [(ours, by_boto3) for ours, by_boto3 in json.loads(output)]


def bytes_per_lease(leases: int) -> float:
    """Return how many bytes a book needs for a lease, without texts."""
    return float(_output("memory", str(leases)))


def keep(url: str, sizes: Sequence[int], seconds: float, rounds: int) -> list[Round]:
    """Run all keepers at the same time, so that each meets the same load of the machine."""
    with ExitStack() as stack:
        running = {
            leases: stack.enter_context(
                _running("keeping", url, str(leases), str(seconds), str(rounds))
            )
            for leases in sizes
        }
        for process in running.values():
            assert process.stdout is not None
            # It has its leases.
            process.stdout.readline()
        for process in running.values():
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = {leases: json.loads(each.communicate()[0]) for leases, each in running.items()}
    return [{leases: Kept(**outputs[leases][index]) for leases in sizes} for index in range(rounds)]


@contextmanager
def _running(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        _command(module, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _output(module: str, *arguments: str) -> str:
    command = _command(module, *arguments)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.scale.{module}", *arguments]
