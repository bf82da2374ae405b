"""The word check of `make lint` finds each avoided word (docs/style.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.markdown import ROOT

WORDS = (ROOT / "docs/avoided-words.txt").read_text(encoding="utf-8").splitlines()


def check(text: str, folder: Path) -> list[str]:
    """Return what the check reports about a text, with the settings that `make lint` uses."""
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", page], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("change", [str.lower, str.capitalize], ids=["within a line", "first"])
def test_each_avoided_word_is_reported_with_its_suggestion(change, tmp_path: Path) -> None:
    pairs = [line.split("->") for line in WORDS]
    text = "".join(f"{change(avoided)}\n" for avoided, _ in pairs)
    reported = check(text, tmp_path)
    expected = [
        f"{tmp_path}/page.md:{line}: {change(avoided)} ==>"
        for line, (avoided, _) in enumerate(pairs, 1)
    ]
    assert [line.partition(" ==>")[0] + " ==>" for line in reported] == expected
    for (_, suggestion), line in zip(pairs, reported, strict=True):
        assert suggestion.rstrip(",").lower() in line.lower()


def test_plain_words_pass(tmp_path: Path) -> None:
    assert check("The worker receives the message and extends its lease.\n", tmp_path) == []


def test_the_list_is_sorted_and_names_each_word_once() -> None:
    assert sorted(set(WORDS)) == WORDS
