"""What the parts of the benchmarks make of their measurements."""

from __future__ import annotations

import pytest

from benchmarks.endless.working import Kind
from benchmarks.frame.part import Size
from benchmarks.overhead.cost import Cost
from benchmarks.overhead.tables import cost_table, memory_table
from benchmarks.overhead.tables import ratios_of as overhead_ratios_of
from benchmarks.overhead.usage import Cpu, Memory
from benchmarks.overhead.variants import JOURNAL, OURS, STOCK
from benchmarks.throughput.grid import Cell
from benchmarks.throughput.plan import plan_of
from benchmarks.throughput.rates import Rate
from benchmarks.throughput.tables import call_table, rate_table, ratios_of


def rate(tasks_per_second: float, receives: int = 0) -> Rate:
    return Rate(tasks_per_second, 100, {"ReceiveMessage": receives, "DeleteMessageBatch": 10})


def cell(kind: Kind, pool: str = "prefork", latency: float = 0.01, prefetch: int = 4) -> Cell:
    return Cell(pool, prefetch, latency, kind)


@pytest.mark.parametrize("size", Size)
def test_stock_workers_live_together_and_each_of_ours_alone(size: Size) -> None:
    plan = plan_of(size)
    lives = list(plan.lives())
    assert {len(life) for life in lives if life[0].kind is Kind.OURS} == {1}
    stock = [life for life in lives if life[0].kind is Kind.STOCK]
    assert {tuple(setup.prefetch for setup in life) for life in stock} == {tuple(plan.prefetches)}
    assert all(setup.kind is Kind.STOCK for life in stock for setup in life)
    ours = [life[0].prefetch for life in lives if life[0].kind is Kind.OURS]
    assert ours == [*plan.prefetches] * len(stock)


def test_each_round_has_a_ratio_of_our_rate_to_the_stock_rate() -> None:
    grid = {cell(Kind.STOCK): [rate(2), rate(4)], cell(Kind.OURS): [rate(20), rate(20)]}
    assert ratios_of(grid) == {"prefork, prefetch 4, 10 ms": [10, 5]}


def test_of_other_pools_one_ratio_is_kept() -> None:
    grid = {
        cell(kind, "threads", latency): [rate(1)] for kind in Kind for latency in (0.0, 0.01, 0.02)
    }
    assert list(ratios_of(grid)) == ["threads, prefetch 4, 10 ms"]


def test_rates_are_shown_by_latency_with_the_stock_worker_first() -> None:
    grid = {cell(Kind.OURS): [rate(20)], cell(Kind.STOCK): [rate(2)]}
    table = rate_table(grid, "prefork")
    assert list(table.columns) == ["a call", "stock, prefetch 4", "ours, prefetch 4"]
    assert [list(row) for row in table.rows] == [["10 ms", "2.00", "20.0"]]


def test_calls_are_shown_per_task_and_together() -> None:
    table = call_table({cell(Kind.OURS): [rate(20, receives=20), rate(20, receives=40)]})
    assert list(table.rows[0]) == ["ours, prefetch 4", "0.300", "0", "0.100", "0", "0.400"]


def cost(consumer_cpu: float, *, tasks_per_second: float = 100, memory: float = 10) -> Cost:
    return Cost(
        tasks=1_000,
        seconds=1_000 / tasks_per_second,
        cpu=Cpu(consumer=consumer_cpu, worker=consumer_cpu, keeper=consumer_cpu),
        start=Cpu(consumer=1, worker=1, keeper=0),
        memory=Memory(worker=memory, keeper=memory),
    )


COSTS = {
    STOCK: [cost(1, tasks_per_second=100)],
    OURS: [cost(0.5, tasks_per_second=300)],
    JOURNAL: [cost(0.5, tasks_per_second=150)],
}


def test_the_cost_of_a_task_is_shown_for_the_consumers_thread_and_for_all_processes() -> None:
    rows = {row[0]: row[1:] for row in cost_table(COSTS).rows}
    assert rows[OURS] == ["300", "500", "1,000"]


def test_the_journal_is_compared_with_the_same_worker_without_one() -> None:
    memory = {STOCK: [cost(1)], OURS: [cost(1, memory=15)]}
    ratios = overhead_ratios_of(COSTS, memory)
    assert ratios["tasks/s, with to without a journal"] == [0.5]
    assert ratios["tasks/s, ours to stock"] == [3]
    assert ratios["consumer's CPU, ours to stock"] == [pytest.approx(0.5)]
    assert ratios["memory, ours to stock"] == [1.5]
    assert list(memory_table(memory).rows[0]) == [STOCK, "10.0", "10.0", "20.0", "1.00", "0"]
