"""The tables and ratios of the part `overhead`."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from benchmarks.frame.part import Spread, Table, digits
from benchmarks.overhead.cost import Cost
from benchmarks.overhead.turns import Costs
from benchmarks.overhead.variants import JOURNAL, OURS, STOCK

Figure = Callable[[Cost], float]

_RATE: Figure = attrgetter("tasks_per_second")
_CONSUMER: Figure = attrgetter("consumer_us")
_PROCESSES: Figure = attrgetter("processes_us")
_MEMORY: Figure = attrgetter("mebibytes")


def cost_table(costs: Costs) -> Table:
    """Return rates and CPU per task."""
    figures = (_RATE, _CONSUMER, _PROCESSES)
    rows = [
        [name, *(str(Spread.of([figure(cost) for cost in each])) for figure in figures)]
        for name, each in costs.items()
    ]
    columns = ("", "tasks a second", "consumer's thread, µs a task", "all processes, µs a task")
    return Table("Empty tasks, prefork", columns, rows)


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


def ratios_of(costs: Costs, memory: Costs) -> dict[str, list[float]]:
    """Return the ratios of each round."""
    return {
        "tasks/s, ours to stock": _divided(costs, OURS, STOCK, _RATE),
        "consumer's CPU, ours to stock": _divided(costs, OURS, STOCK, _CONSUMER),
        "tasks/s, with to without a journal": _divided(costs, JOURNAL, OURS, _RATE),
        "memory, ours to stock": _divided(memory, OURS, STOCK, _MEMORY),
    }


def _divided(costs: Costs, one: str, other: str, figure: Figure) -> list[float]:
    return [figure(a) / figure(b) for a, b in zip(costs[one], costs[other], strict=True)]
