"""The rates and percentiles of the benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.throughput.windows import percentile, tasks_per_second


def test_a_rate_counts_whole_cycles_from_one_receive_to_another() -> None:
    receives = [(10.0, 2), (11.0, 2), (12.0, 2)]
    deletes = [(9.9, 2), (10.1, 1), (10.2, 1), (11.1, 2), (12.1, 1)]
    assert tasks_per_second(receives, deletes) == 2.0


def test_receives_without_messages_do_not_bound_a_rate() -> None:
    receives = [(9.0, 0), (10.0, 1), (12.0, 1), (15.0, 0)]
    assert tasks_per_second(receives, [(11.0, 4)]) == 2.0


def test_without_a_whole_cycle_there_is_no_rate() -> None:
    assert tasks_per_second([(10.0, 1), (11.0, 0)], [(10.5, 1)]) == 0


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.99, 99), (0.991, 100), (1, 100), (0, 1)]
)
def test_a_percentile_is_the_smallest_sample_that_covers_its_share(
    share: float, expected: int
) -> None:
    assert percentile([float(each) for each in range(100, 0, -1)], share) == expected


def test_a_percentile_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        percentile([], 0.5)
