"""The frame of `make bench`: figures, the page's sections, and the ratios that moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.frame import baseline, page
from benchmarks.frame.part import Findings, Part, Spread, Table, digits
from benchmarks.parts import PARTS
from tests.support.markdown import ROOT


def part_named(name: str) -> Part:
    return Part(name, "Calls", "Ours beside theirs.", lambda size: FINDINGS)


FINDINGS = Findings(
    tables=[Table("Rates", ("", "ours"), [["10 ms", "1.6"]])],
    ratios={"ours to theirs": [1.0, 3.0, 2.0]},
    notes=["A note."],
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.01234, "0.012"), (1.614, "1.61"), (16.14, "16.1"), (1614.2, "1,614")],
)
def test_a_figure_is_shown_with_about_three_digits(value: float, shown: str) -> None:
    assert digits(value) == shown


def test_a_spread_is_the_median_with_the_lowest_and_the_highest() -> None:
    assert str(Spread.of([1.0, 3.0, 2.0])) == "2.00 (1.00-3.00)"


def test_a_spread_without_measurements_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        Spread.of([])


@pytest.mark.parametrize(
    ("before", "now", "has_moved"),
    [
        ([1.0, 1.1, 1.2], [1.1, 1.2, 1.3], False),
        ([1.0, 1.1, 1.2], [1.15, 1.25, 1.4], True),
        ([1.0, 1.1, 1.2], [0.5, 0.6, 2.0], False),
        ([1.0, 1.1, 1.2], [0.8, 0.9, 0.95], True),
    ],
    ids=["within both", "outside both, though the ranges overlap", "within one", "slower"],
)
def test_a_ratio_has_moved_if_each_median_is_outside_the_other_range(
    before: list[float], now: list[float], has_moved: bool
) -> None:
    moved = baseline.moves({"p: r": Spread.of(before)}, {"p: r": Spread.of(now)})
    assert bool(moved) is has_moved


def test_the_baseline_keeps_a_part_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    baseline.keep(path, {}, baseline.spreads("scale", {"a": [1.0]}), "scale")
    baseline.keep(path, baseline.load(path), baseline.spreads("calls", {"b": [2.0]}), "calls")
    baseline.keep(path, baseline.load(path), baseline.spreads("scale", {"c": [3.0]}), "scale")
    assert {name: each.median for name, each in baseline.load(path).items()} == {
        "calls: b": 2.0,
        "scale: c": 3.0,
    }


def test_a_broken_baseline_is_named(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"a": {"middle": 1}}')
    with pytest.raises(ValueError, match=r"baseline\.json: is no baseline .* restore or remove it"):
        baseline.load(path)


def test_a_part_replaces_its_own_section_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text("# P\n<!-- a -->\nold\n<!-- end of a -->\n<!-- b -->kept<!-- end of b -->\n")
    page.write(path, part_named("a"), FINDINGS, "2026-01-01, a machine")
    text = path.read_text()
    assert "old" not in text
    assert "| 10 ms | 1.6 |" in text
    assert "`make bench PART=a`, 2026-01-01, a machine." in text
    assert "<!-- b -->kept<!-- end of b -->" in text


def test_a_page_without_a_place_for_the_part_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text("# P\n")
    with pytest.raises(ValueError, match="has no lines <!-- a -->"):
        page.write(path, part_named("a"), FINDINGS, "")


def test_the_page_has_a_place_for_each_part() -> None:
    text = (ROOT / "docs/performance.md").read_text()
    assert [name for name in PARTS if f"<!-- {name} -->" not in text] == []
