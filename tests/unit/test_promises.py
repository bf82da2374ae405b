"""The promises that `make test` shows are those of the README and its pages, and have tests."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.acceptance.promises import FOLDER, PAGES, PROMISES, promised
from tests.support.markdown import ROOT


@pytest.mark.parametrize("words", PROMISES)
def test_each_promise_is_in_the_readme_or_its_pages(words: str) -> None:
    assert any(words in " ".join(read(page).split()) for page in PAGES)


def test_the_readme_links_to_the_other_pages_of_promises() -> None:
    readme, *others = PAGES
    assert [page for page in others if f"]({page})" not in read(readme)] == []


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_limits_name_the_exceptions_to_the_first_promise_that_the_docs_explain() -> None:
    readme = read("README.md")
    claim, _, rest = readme.partition("\n## ")
    limits = _section(rest, "Limits")
    explained = _section(read("docs/motivation.md"), "What can still run twice")
    assert "(#limits)" in claim
    assert "docs/motivation.md#what-can-still-run-twice" in limits
    exceptions = re.findall(r"^\| \*\*(.+?)\*\*", explained, re.MULTILINE)
    assert len(exceptions) == 8
    assert re.findall(r"\*\*(.+?)\*\*", limits) == exceptions


def _section(text: str, heading: str) -> str:
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_each_promise_names_tests_that_exist() -> None:
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", FOLDER],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout
    there = {line.removeprefix(FOLDER) for line in collected.stdout.splitlines()}
    gone = promised() - there
    assert not gone, f"tests/acceptance/promises.py names tests that are gone: {sorted(gone)}"
