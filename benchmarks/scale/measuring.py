"""Measures keepers of several sizes side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.frame.part import Findings, Size
from benchmarks.scale import running, showing
from benchmarks.scale.messages import QUEUE
from celery_sqs_heartbeat.leases.message import queue_name

#: Seconds from a call's arrival at the server to its answer.
_LATENCY = 0.01
#: The leases whose memory is traced. Tracing makes a book several times as slow.
_TRACED_LEASES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How much is measured: keepers with so many leases, and calls alone."""

    leases: Sequence[int]
    seconds: float
    rounds: int
    calls: int
    call_rounds: int


_PLANS = {
    Size.FULL: _Plan(
        leases=(1_000, 10_000, 100_000), seconds=8.0, rounds=3, calls=100, call_rounds=11
    ),
    Size.TINY: _Plan(leases=(1_000, 5_000), seconds=3.0, rounds=1, calls=20, call_rounds=2),
}


def measure(size: Size) -> Findings:
    """Measure what leases and their calls cost a keeper."""
    plan = _PLANS[size]
    with (
        tempfile.TemporaryDirectory() as folder,
        EndlessServer(Path(folder) / "server.log") as server,
    ):
        queue = server.confirming(queue_name(QUEUE))
        calls = running.compare_calls(server.url, plan.calls, plan.call_rounds)
        queue.set_latency(_LATENCY)
        rounds = running.keep(server.url, plan.leases, plan.seconds, plan.rounds)
    traced = running.bytes_per_lease(_TRACED_LEASES)
    return Findings(
        tables=[
            showing.call_table(calls),
            showing.cost_table(rounds, plan.leases),
        ],
        ratios=showing.ratios(calls, rounds, plan.leases),
        pictures=[showing.picture(rounds, plan.leases)],
        notes=showing.notes(rounds, plan.leases, traced, _TRACED_LEASES),
    )
