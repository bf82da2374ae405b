"""Quantiles from bins, on the driver and by Spark."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.schema import DURATIONS
from celery_sqs_heartbeat.pipeline.tables.bins import bin_of, middle_of
from celery_sqs_heartbeat.pipeline.tables.quantiles import name_of, quantiles_of, tails_of
from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram
from tests.pipeline.builders import SECOND, frame_of, rows_of

PARTS = (0.5, 0.99, 0.999)
DISTRIBUTIONS: dict[str, Callable[[random.Random], float]] = {
    "exponential": lambda chance: chance.expovariate(1 / 3e6),
    "lognormal": lambda chance: chance.lognormvariate(15, 2),
    "pareto": lambda chance: 1e5 * chance.paretovariate(1.1),
    "uniform": lambda chance: chance.uniform(1e6, 2e6),
    "two humps": lambda chance: chance.gauss(5e5, 1e4) if chance.random() < 0.98 else 3e9,
}


def _spans(name: str) -> list[int]:
    chance = random.Random(name)
    return sorted(max(1, round(DISTRIBUTIONS[name](chance))) for _ in range(20_000))


def _exact(spans: list[int], part: float) -> int:
    return spans[math.ceil(part * len(spans)) - 1]


def _histogram(spans: Sequence[float], censored: Sequence[float] = ()) -> Histogram:
    return Histogram(Counter(map(bin_of, spans)), Counter(map(bin_of, censored)))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("part", PARTS)
def test_quantiles_from_bins_are_within_one_percent(name: str, part: float) -> None:
    spans = _spans(name)
    assert _histogram(spans).quantile(part) == pytest.approx(_exact(spans, part), rel=0.01)


def test_a_running_task_counts_as_long_not_as_absent() -> None:
    chance = random.Random(1)
    ended: list[float] = []
    running: list[float] = []
    for _ in range(50_000):
        span, age = chance.expovariate(1 / 1e7), chance.uniform(0, 8e7)
        (ended if span <= age else running).append(min(span, age))
    histogram = _histogram(ended, running)
    expected = 1e7 * math.log(100)
    assert histogram.quantile(0.99) == pytest.approx(expected, rel=0.1)
    assert _histogram(ended).quantile(0.99) == pytest.approx(0.9 * expected, rel=0.1)


def test_a_quantile_that_no_end_reaches_is_not_known() -> None:
    histogram = _histogram([SECOND] * 5, [100 * SECOND] * 5)
    assert histogram.quantile(0.5) == pytest.approx(SECOND, rel=0.01)
    assert histogram.quantile(0.9) is None


def test_months_combine_by_adding_bins() -> None:
    spans = _spans("lognormal")
    assert _histogram(spans[::2]) + _histogram(spans[1::2]) == _histogram(spans)


def test_an_empty_histogram_has_no_quantiles() -> None:
    nothing = Histogram()
    assert (nothing.quantile(0.5), nothing.distribution, nothing.longest()) == (None, [], 0.0)


def _rows(task: str, histogram: Histogram, **fields: Any) -> list[dict[str, Any]]:
    base = {"queue": "work", "task": task, "measure": "run", "vt": 30, **fields}
    return [
        {
            **base,
            "bin": each,
            "spans": histogram.spans.get(each, 0),
            "censored": histogram.censored.get(each, 0),
        }
        for each in histogram.spans.keys() | histogram.censored.keys()
    ]


def test_spark_finds_the_same_quantiles_as_the_driver(spark: SparkSession) -> None:
    histograms = {name: _histogram(_spans(name)) for name in DISTRIBUTIONS}
    histograms["censored"] = _histogram([SECOND] * 5 + [SECOND * 2], [SECOND] * 2 + [SECOND * 100])
    rows = [row for task, histogram in histograms.items() for row in _rows(task, histogram)]
    found = quantiles_of(frame_of(spark, DURATIONS, rows), parts=PARTS).collect()
    assert len(found) == len(histograms)
    for row in found:
        histogram = histograms[row.task]
        assert row.spans == sum(histogram.spans.values())
        for part in PARTS:
            expected = histogram.quantile(part)
            assert row[name_of(part)] == (None if expected is None else pytest.approx(expected))


def test_the_tail_that_outlives_the_visibility_timeout_is_counted(spark: SparkSession) -> None:
    histogram = _histogram([SECOND * 10] * 7 + [SECOND * 40] * 2, [SECOND * 50])
    rows = [
        *_rows("slow", histogram),
        *_rows("slow", _histogram([SECOND * 40]), vt=60),
        *_rows("slow", _histogram([SECOND * 40]), measure="wait"),
    ]
    tails = tails_of(frame_of(spark, DURATIONS, rows))
    assert rows_of(tails, "vt", "runs", "outlived", "share") == {(30, 10, 3, 0.3), (60, 1, 0, 0.0)}


def test_a_bins_middle_is_within_one_percent_of_all_its_spans() -> None:
    for span in (1, 2, 999, 1_000_000, 43_200_000_000):
        assert middle_of(bin_of(span)) == pytest.approx(span, rel=0.01)
