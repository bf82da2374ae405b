"""The workers that the part `overhead` compares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.endless.server import EndlessServer
from benchmarks.endless.working import Kind, Setup
from benchmarks.overhead.cost import UNLIMITED, Cost, cost_of

STOCK, INLINE, BATCHED, JOURNAL = "stock", "inline", "batched", "batched, journal"
#: Both delete each message by a blocking call, so the difference is what leases cost.
BLOCKING = (STOCK, INLINE)
ALL = (STOCK, INLINE, BATCHED, JOURNAL)

#: The costs of each round, by the worker's name.
Costs = Mapping[str, Sequence[Cost]]


def setup_of(name: str, folder: Path, *, fresh: bool = False) -> Setup:
    """Return how to start a worker.

    Args:
        folder: For its journal.
        fresh: Whether it imports Celery itself.
    """
    conf: dict[str, str] = {}
    if name == INLINE:
        conf["sqs_heartbeat_ack"] = "inline"
    if name == JOURNAL:
        conf["sqs_heartbeat_journal"] = str(folder / "journal")
    kind = Kind.STOCK if name == STOCK else Kind.OURS
    return Setup(kind=kind, prefetch=UNLIMITED, conf=conf, fresh=fresh)


def in_turns(
    server: EndlessServer,
    names: Sequence[str],
    folder: Path,
    *,
    rounds: int,
    tasks: int,
    latency: float,
    fresh: bool = False,
) -> Costs:
    """Run one worker after the other, and all of them again in each round."""
    costs: dict[str, list[Cost]] = defaultdict(list)
    for _ in range(rounds):
        for name in names:
            setup = setup_of(name, folder, fresh=fresh)
            costs[name].append(cost_of(server, setup, folder, tasks=tasks, latency=latency))
    return costs
