"""The decision records are dated, short, in one form, and listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.markdown import ROOT

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
#: The number of lines of a screen.
SCREEN = 45


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_is_dated_short_and_in_its_form(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0].startswith("# ")
    assert lines[2] == f"*{page.name[:10]}*"
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    without_choice = [heading for heading in headings if heading != "What we considered"]
    assert without_choice == ["Context", "Decision", "Consequences"]
    assert headings.index("Context") == 0
    assert headings[-2:] == ["Decision", "Consequences"]
    assert len(lines) <= SCREEN


def test_the_index_lists_each_decision_by_its_title_the_newest_first() -> None:
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d-]+) \| \w+ \| \[(.*)\]\((.*)\) \|$", text, re.MULTILINE)
    assert sorted(name for _, _, name in rows) == [page.name for page in PAGES]
    for date, title, name in rows:
        assert name.startswith(date)
        assert (FOLDER / name).read_text(encoding="utf-8").startswith(f"# {title}\n")
    dates = [date for date, _, _ in rows]
    assert dates == sorted(dates, reverse=True)
