"""The tables and ratios of the benchmark `recovery`, from rounds made by hand."""

from __future__ import annotations

from benchmarks.recovery.part import OURS, SCENARIOS, STOCK, findings
from benchmarks.recovery.rounds import Round
from benchmarks.recovery.scenarios import FAILED, KILLED, POLLS, TWICE


def round_of(stock: float, ours: float, *, redeliveries: int = 0) -> Round:
    """Return a round in which each scenario took the same time, at 5 s and at 10 s."""
    shorter = {
        (kind, 5): {KILLED: seconds, FAILED: seconds}
        for kind, seconds in ((STOCK, stock / 2), (OURS, ours))
    }
    longer = {
        (STOCK, 10): {**dict.fromkeys(SCENARIOS, stock), TWICE: 1, POLLS: 0},
        (OURS, 10): {**dict.fromkeys(SCENARIOS, ours), TWICE: 0, POLLS: 1},
    }
    return Round({**shorter, **longer}, 1.0, redeliveries)


FOUND = findings([round_of(10, 0.1), round_of(8, 0.4, redeliveries=1)], (5, 10))


def test_the_ratios_compare_both_workers_of_a_round_at_the_longest_timeout() -> None:
    assert FOUND.ratios == {
        f"ours to stock, {name}, 10 s": [0.1 / 10, 0.4 / 8] for name in SCENARIOS
    }


def test_the_tables_show_every_scenario_and_both_workers_by_timeout() -> None:
    by_scenario, by_timeout, keeper, connection = FOUND.tables
    assert by_scenario.rows[0] == [KILLED, "9.00 (8.00-10.0)", "0.250 (0.100-0.400)"]
    assert len(by_scenario.rows) == len(SCENARIOS)
    assert by_timeout.rows[0] == [f"{KILLED}, {STOCK}", "4.50 (4.00-5.00)", "9.00 (8.00-10.0)"]
    assert keeper.rows == [[OURS, "1.00", "1"]]
    assert connection.rows == [[STOCK, "2", "0"], [OURS, "0", "2"]]


def test_the_picture_has_a_line_for_each_worker() -> None:
    (picture,) = FOUND.pictures
    assert f">{STOCK}</text>" in picture.svg
    assert f">{OURS}</text>" in picture.svg
