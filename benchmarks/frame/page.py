"""Writes the findings of a part into its section of `docs/performance.md`."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.frame.baseline import spreads
from benchmarks.frame.part import Findings, Part, Table


def section(part: Part, findings: Findings, machine: str) -> str:
    """Return the section in Markdown, without its markers."""
    blocks = [f"## {part.title}", part.about]
    blocks += [f"![{each.alt}](img/performance/{each.name}.svg)" for each in findings.pictures]
    blocks += [f"**{each.title}**\n\n{_markdown(each)}" for each in findings.tables]
    blocks += findings.notes
    blocks.append(f"`make bench PART={part.name}`, {machine}.")
    return "\n\n".join(blocks)


def write(page: Path, part: Part, findings: Findings, machine: str) -> None:
    """Replace a part's section of the page, and its pictures beside the page.

    Raises:
        ValueError: The page has no place for the part.
    """
    begin, end = f"<!-- {part.name} -->", f"<!-- end of {part.name} -->"
    text = page.read_text()
    place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not place.search(text):
        raise ValueError(f"{page}: has no lines {begin} and {end}: add them where the part belongs")
    written = f"{begin}\n\n{section(part, findings, machine)}\n\n{end}"
    page.write_text(place.sub(lambda _: written, text))
    folder = page.parent / "img" / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    for picture in findings.pictures:
        (folder / f"{picture.name}.svg").write_text(picture.svg)


def ratio_table(part: Part, findings: Findings) -> Table:
    """Return the ratios of a part as a table for the terminal."""
    rows = [[name, str(each)] for name, each in spreads(part.name, findings.ratios).items()]
    return Table("Ratios", ("ratio", "median (lowest-highest)"), rows)


def _markdown(table: Table) -> str:
    align = ["---", *["--:"] * (len(table.columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.columns, align, *table.rows))
