"""Each part of `make bench` runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.__main__ import BASELINE, PAGE
from benchmarks.parts import PARTS
from tests.support.markdown import ROOT


@pytest.mark.thorough
@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_in_its_smallest_size_and_writes_nothing(part: str) -> None:
    before = PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--tiny", part],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{part}: " in done.stdout
    assert (PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()) == before
