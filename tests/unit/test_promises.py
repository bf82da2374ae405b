"""What `make test` shows of the README is what the README says, and is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.acceptance.promises import FOLDER, PROMISES, promised
from tests.support.markdown import ROOT


@pytest.mark.parametrize("words", PROMISES)
def test_each_promise_is_in_the_readme(words: str) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert words in readme


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
