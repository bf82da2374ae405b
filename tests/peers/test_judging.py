"""A small suite, judged like those of other projects, in separate pytest processes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.peers.__main__ import compare, judge, table
from tests.peers.running import Result
from tests.peers.suites import Known, Suite

#: Its plugin in place of ours. pytest finds it in the folder of the suite.
PLUGIN = """
import os
os.environ["WITH"] = "ours"
"""
TESTS = """
import os
from pathlib import Path

import pytest

OURS = os.environ.get("WITH") == "ours"

@pytest.fixture(autouse=True)
def noted(request):
    before = Path("ran").read_text() if Path("ran").exists() else ""
    with open("ran", "a") as ran:
        ran.write(f"{'ours' if OURS else 'stock'} {request.node.name}\\n")
    return before

def test_good():
    pass

def test_good_too():
    pass

def test_broken():
    raise ValueError

def test_lost():
    assert not OURS

def test_no_more_run():
    if OURS:
        pytest.skip("ours can't")

def test_races(noted):
    assert not OURS or "ours test_races" in noted

if not OURS:
    def test_not_even_there():
        pass
"""
AT = "t/test_it.py::"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the suite."""
    # It does not need this project's plugins, which are slow to import.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    folder = tmp_path / "suite"
    (folder / "t").mkdir(parents=True)
    (folder / "pytest.ini").touch()
    (folder / "t" / "test_it.py").write_text(TESTS)
    (folder / "in_the_place_of_ours.py").write_text(PLUGIN)
    return folder


def test_only_tests_that_do_not_pass_with_ours_are_run_with_stock(folder: Path) -> None:
    suite = Suite(
        name="small", package="none", paths=("t",), ours=("in_the_place_of_ours",), shards=2
    )
    said: list[str] = []
    judged = judge(suite, folder, folder.parent, said.append)
    assert set(judged.worse) == {f"{AT}test_{n}" for n in ("lost", "no_more_run", "not_even_there")}
    assert set(judged.alike) == {f"{AT}test_broken"}
    # The last run that passed was with ours.
    assert (judged.ours, judged.passed, judged.stock) == (6, 3, 5)
    assert Counter((folder / "ran").read_text().splitlines()) == {
        "ours test_good": 1,
        "ours test_good_too": 1,
        "ours test_broken": 1,
        "stock test_broken": 1,
        "ours test_lost": 3,
        "stock test_lost": 1,
        "ours test_no_more_run": 3,
        "stock test_no_more_run": 1,
        "ours test_races": 2,
        "stock test_races": 1,
        "stock test_not_even_there": 1,
    }
    assert not judged.is_good
    lines = list(table([(suite, judged)]))
    assert lines[1].split() == ["small", "6", "3", "5", "1", "0", "3"]
    assert f"alike, failed: small: {AT}test_broken" in lines
    assert any(line.startswith(f"WORSE: small: {AT}test_no_more_run") for line in lines)


GOOD = Result("passed")
BAD, OTHER = Result("failed", "AttributeError: no meta"), Result("failed", "TimeoutError")
META = Known(tests="t/*::test_get*", error="no meta", reason="made by hand")


@pytest.mark.parametrize(
    ("test", "result", "is_meant"),
    [
        ("t/sqs.py::test_get_bulk[1]", BAD, True),
        ("t/sqs.py::test_get", OTHER, False),
        ("t/sqs.py::test_put", BAD, False),
        pytest.param("t/sqs.py::test_get", GOOD, False, id="it is gone"),
    ],
)
def test_a_known_difference_excuses_its_tests_for_its_reason_only(
    test: str, result: Result, *, is_meant: bool
) -> None:
    comparison = compare({test: GOOD}, {"z": GOOD, test: result}, [META])
    assert comparison.is_good is bool(comparison.meant) is is_meant
    assert bool(comparison.unused) is not is_meant
