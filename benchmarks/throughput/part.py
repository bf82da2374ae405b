"""The part `throughput`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.frame.part import Findings, Part, Size
from benchmarks.throughput.grid import measure_grid
from benchmarks.throughput.idle import measure_idle
from benchmarks.throughput.picture import draw
from benchmarks.throughput.plan import plan_of
from benchmarks.throughput.starts import measure_starts
from benchmarks.throughput.tables import call_table, rate_table, ratios_of

_ABOUT = """\
Tasks per second of a worker with `--heartbeat-sqs` beside a stock one, when each call to SQS
takes 0 to 50 ms. Both run two processes (or threads, or greenlets) with `task_acks_late` and
empty tasks. The prefetch multiplier is 1, 4 (Celery's default) or 50. The server serves over
20,000 messages a second, so the worker is the limit."""

_NOTES = [
    "A stock worker with all prefetch slots in use waits for kombu's polling interval of 1 s "
    "before it looks again, even if tasks have ended meanwhile. It deletes each message by a call "
    "of its own, during which its event loop does nothing else. Ours polls as soon as there is "
    "room, with up to four polls at a time while the queue has more. It receives, and deletes in "
    "batches, in the keeper's process.",
    "The worker's main thread is the limit where calls are fast or the prefetch is large.",
    "If tasks take longer than what a worker does for each of their messages, both kinds of "
    "worker are as fast as their tasks. SQS itself often returns fewer than ten messages per "
    "receive. Workers with threads and gevent are measured once, those with prefork twice.",
]


def _measure(size: Size) -> Findings:
    plan = plan_of(size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EndlessServer(folder / "server.log") as server:
            grid = measure_grid(server, plan, folder)
            starts = measure_starts(server, plan.paced, folder)
            idle = measure_idle(server, plan.idle, folder)
    rates = [rate_table(grid, pool) for pool in plan.latencies]
    return Findings(
        tables=[*rates, call_table(grid)],
        ratios=ratios_of(grid),
        pictures=[draw(grid)],
        notes=[*_NOTES, f"{starts} {idle}"],
    )


PART = Part("throughput", "Throughput", _ABOUT, _measure)
