"""Measures with fewer cores, and projects the times with more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: The cores that are projected to.
MORE = (4, 8, 16)


def on_cores(number: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in this process and its children on so many cores.

    Java and DuckDB see only these. Call it in a process of its own.

    Raises:
        ValueError: The machine has fewer cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    if number > len(cores):
        raise ValueError(f"--cores {number}: this machine has {len(cores)}")
    os.sched_setaffinity(0, cores[:number])
    return function(*args, **kwargs)


def curve(spark: Mapping[int, float], duckdb: Mapping[int, float]) -> Iterator[str]:
    """Yield lines with the seconds by number of cores, and the projection to more cores.

    Args:
        spark: Seconds by number of cores, of at least two numbers.
        duckdb: The same for DuckDB.
    """
    yield f"  {'cores':>5}{'Spark, s':>10}{'DuckDB, s':>11}{'ratio':>8}"
    for cores in sorted(spark):
        yield _line(cores, spark[cores], duckdb[cores])
    laws = [_law(sorted(seconds.items())) for seconds in (spark, duckdb)]
    for cores in MORE:
        ours, others = (alone + shared / cores for alone, shared in laws)
        yield f"{_line(cores, ours, others)}  projected"
    ours_alone, others_alone = (alone for alone, _ in laws)
    yield (
        f"  projected by Amdahl's law from the fewest and the most cores: {ours_alone:.1f} s of "
        f"Spark and {others_alone:.1f} s of DuckDB use one core at a time"
    )


def _law(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return the seconds that more cores do not shorten, and the core seconds that they share."""
    (few, longest), (many, shortest) = points[0], points[-1]
    shared = (longest - shortest) / (1 / few - 1 / many)
    return max(longest - shared / few, 0.0), shared


def _line(cores: int, ours: float, others: float) -> str:
    return f"  {cores:5}{ours:10.1f}{others:11.1f}{ours / others:8.2f}"
