"""The projection of the pipeline's times to more cores."""

from __future__ import annotations

import os

import pytest

from benchmarks.pipeline.cores import curve, on_cores


def figures(line: str) -> list[float]:
    return [float(word) for word in line.split() if word.replace(".", "").isdigit()]


def test_times_are_projected_by_what_more_cores_have_shortened() -> None:
    # 20 s use one core at a time, and 80 core seconds are shared. All of DuckDB's are shared.
    spark, duckdb = {1: 100.0, 2: 60.0}, {1: 40.0, 2: 20.0}
    _, one, two, four, eight, sixteen, law = curve(spark, duckdb)
    assert figures(one) == [1, 100, 40, 2.5]
    assert figures(two) == [2, 60, 20, 3]
    assert figures(four) == [4, 40, 10, 4]
    assert figures(eight) == [8, 30, 5, 6]
    assert figures(sixteen) == [16, 25, 2.5, 10]
    assert "20.0 s of Spark and 0.0 s of DuckDB use one core" in law


def test_more_cores_than_the_machine_has_are_refused() -> None:
    has = len(os.sched_getaffinity(0))
    with pytest.raises(ValueError, match=rf"--cores {has + 1}: this machine has {has}"):
        on_cores(has + 1, int)
