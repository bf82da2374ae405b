"""The tables and ratios of the part `overhead`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from benchmarks.frame.part import Spread, Table, digits
from benchmarks.overhead.cost import Cost
from benchmarks.overhead.turns import Costs
from benchmarks.overhead.variants import BATCHED, INLINE, JOURNAL, STOCK

Figure = Callable[[Cost], float]

_RATE: Figure = attrgetter("tasks_per_second")
_CONSUMER: Figure = attrgetter("consumer_us")
_PROCESSES: Figure = attrgetter("processes_us")
_MEMORY: Figure = attrgetter("mebibytes")


def cost_table(costs: Costs, latency: float) -> Table:
    """Return rates and CPU per task. `latency` is in seconds."""
    rows = []
    for name, each in costs.items():
        shown = [
            str(Spread.of([figure(cost) for cost in each]))
            for figure in (_RATE, _CONSUMER, _PROCESSES)
        ]
        rows.append([name, *shown, str(_added(each, costs[STOCK])) if name == INLINE else ""])
    columns = (
        "",
        "tasks a second",
        "consumer's thread, µs a task",
        "all processes, µs a task",
        "consumer's thread, more than stock, µs a task",
    )
    return Table(f"Empty tasks, prefork, {latency * 1000:g} ms a call", columns, rows)


def _added(ours: Sequence[Cost], stock: Sequence[Cost]) -> Spread:
    """Return how much more CPU the consumer's thread takes than that of a stock worker."""
    return Spread.of([a.consumer_us - b.consumer_us for a, b in zip(ours, stock, strict=True)])


def memory_table(memory: Costs) -> Table:
    """Return the memory of workers after their tasks, and the CPU that they took to start."""
    rows = []
    for name, (cost,) in memory.items():
        sizes = (cost.memory.worker, cost.memory.keeper, cost.mebibytes)
        starts = (cost.start.worker, cost.start.keeper)
        rows.append([name, *map(digits, sizes), *map(digits, starts)])
    columns = (
        "",
        "worker, MiB",
        "keeper, MiB",
        "both, MiB",
        "start of the worker, s of CPU",
        "start of the keeper, s of CPU",
    )
    return Table("Memory (PSS) and the start", columns, rows)


def ratios_of(costs: Mapping[float, Costs], memory: Costs) -> dict[str, list[float]]:
    """Return the ratios of each round.

    Args:
        costs: By latency, in seconds; all workers at the first one.
    """
    ratios = {}
    for latency, each in costs.items():
        at = f"{latency * 1000:g} ms a call"
        ratios[f"tasks/s, inline to stock, {at}"] = _divided(each, INLINE, STOCK, _RATE)
        ratios[f"consumer's CPU, inline to stock, {at}"] = _divided(each, INLINE, STOCK, _CONSUMER)
    first = next(iter(costs.values()))
    return {
        **ratios,
        "tasks/s, batched to stock": _divided(first, BATCHED, STOCK, _RATE),
        "consumer's CPU, batched to stock": _divided(first, BATCHED, STOCK, _CONSUMER),
        "tasks/s, with to without a journal": _divided(first, JOURNAL, BATCHED, _RATE),
        "memory, batched to stock": _divided(memory, BATCHED, STOCK, _MEMORY),
    }


def _divided(costs: Costs, one: str, other: str, figure: Figure) -> list[float]:
    return [figure(a) / figure(b) for a, b in zip(costs[one], costs[other], strict=True)]
