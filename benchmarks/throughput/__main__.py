"""Measures one worker, for developers.

python -m benchmarks.throughput --pool prefork --prefetch 4 --latency 0.01 --kind ours
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import NOTHING, POOLS, Kind, Setup, working
from benchmarks.throughput.rates import measure


@click.command()
@click.option("--pool", type=click.Choice([*POOLS, "solo", "eventlet"]), default="prefork")
@click.option("--prefetch", default=4, help="The prefetch multiplier of two processes.")
@click.option("--latency", default=0.01, help="Seconds that each call takes.")
@click.option("--kind", type=click.Choice([each.value for each in Kind]), default="ours")
@click.option("--seconds", default=5.0, help="How long to measure.")
@click.option("--windows", default=1, help="How often, with the same worker.")
def main(pool: str, prefetch: int, latency: float, kind: str, seconds: float, windows: int) -> None:
    """Print tasks per second, and calls per task, of one worker on an endless queue."""
    console = Console()
    setup = Setup(kind=Kind(kind), pool=pool, prefetch=prefetch)
    with (
        tempfile.TemporaryDirectory() as folder,
        EndlessServer(Path(folder) / "server.log") as server,
    ):
        queue = server.queue(NOTHING)
        with working(server, queue, setup, Path(folder)) as worker:
            console.print(f"worker {worker.pid}, server {server.pid}")
            for _ in range(windows):
                rate = measure(queue, latency, seconds)
                console.print(f"{rate.tasks_per_second:8.1f} tasks/s")
                for name, calls in sorted(rate.calls.items()):
                    console.print(f"{calls / rate.deleted:8.3f} {name} a task")


if __name__ == "__main__":
    main()
