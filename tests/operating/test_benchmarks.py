"""`make bench` runs, and every benchmark can be imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.__main__ import BASELINE, PAGE
from benchmarks.parts import PARTS
from tests.support.markdown import ROOT

pytestmark = pytest.mark.thorough

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if path.stem != "__init__"
)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_module_of_the_benchmarks_can_be_imported() -> None:
    done = run("-c", "\n".join(f"import {name}" for name in MODULES))
    assert done.returncode == 0, done.stderr


def test_a_part_runs_in_its_smallest_size_and_writes_nothing() -> None:
    part, *_ = PARTS
    before = PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()
    done = run("-m", "benchmarks", "--tiny", part)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{part}: " in done.stdout
    assert (PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()) == before
