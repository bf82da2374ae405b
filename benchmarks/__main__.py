"""Measures this project beside the alternatives, and writes `docs/performance.md`.

python -m benchmarks                    # all parts
python -m benchmarks throughput scale   # some of them
python -m benchmarks --tiny scale       # only to see that it works; writes nothing
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.frame import baseline, machine, page
from benchmarks.frame.part import Findings, Part, Size, Table
from benchmarks.parts import PARTS, find

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
BASELINE = ROOT / "benchmarks" / "baseline.json"


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--tiny", is_flag=True, help="Measure as little as possible, and write nothing.")
@click.option("--keep", is_flag=True, help="Keep the ratios as the new baseline.")
def main(parts: tuple[str, ...], tiny: bool, keep: bool) -> None:
    """Measure PARTS (all of them by default), and write docs/performance.md."""
    console = Console()
    seconds: dict[str, float] = {}
    for name in parts or PARTS:
        part = find(name)
        begun = time.monotonic()
        console.rule(part.title)
        findings = part.measure(Size.TINY if tiny else Size.FULL)
        for table in (*findings.tables, page.ratio_table(part, findings)):
            console.print(_rich(table))
        for note in findings.notes:
            console.print(note, markup=False)
        seconds[name] = time.monotonic() - begun
        console.print(f"{name}: {seconds[name]:.0f} s")
        if not tiny:
            _record(console, part, findings, keep=keep)
    if len(seconds) > 1:
        console.print(_rich(_durations(seconds)))


def _record(console: Console, part: Part, findings: Findings, *, keep: bool) -> None:
    """Write a part's section, and report which ratios have moved."""
    page.write(PAGE, part, findings, machine.describe())
    before, now = baseline.load(BASELINE), baseline.spreads(part.name, findings.ratios)
    for move in baseline.moves(before, now):
        console.print(f"moved by more than its spread: {move}", style="yellow", markup=False)
    if keep:
        baseline.keep(BASELINE, before, now, part.name)


def _durations(seconds: Mapping[str, float]) -> Table:
    """Return how long each part took, and all of them."""
    rows = [*seconds.items(), ("together", sum(seconds.values()))]
    return Table("Seconds", ("part", "s"), [[name, f"{each:.0f}"] for name, each in rows])


def _rich(table: Table) -> RichTable:
    shown = RichTable(title=table.title)
    for index, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if index else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown


if __name__ == "__main__":
    main()
