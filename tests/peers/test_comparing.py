"""How the outcomes of another project's suite are judged."""

from __future__ import annotations

import pytest

from tests.peers.comparing import MISSING, PASSED, Known, Result, compare

GOOD = Result(PASSED)
BAD = Result("failed", "AttributeError: no meta")
OTHER = Result("failed", "TimeoutError")
SKIPPED = Result("skipped")
META = Known(tests="t/*::test_get*", error="no meta", reason="made by hand")


@pytest.mark.parametrize(
    ("stock", "ours", "worse"),
    [
        ({"a": GOOD}, {"a": GOOD}, {}),
        ({"a": GOOD}, {"a": BAD}, {"a": BAD}),
        ({"a": GOOD}, {"a": SKIPPED}, {"a": SKIPPED}),
        ({"a": GOOD}, {}, {"a": MISSING}),
        ({"a": BAD}, {"a": BAD}, {}),
        ({"a": BAD}, {"a": GOOD}, {}),
        ({"a": SKIPPED}, {"a": BAD}, {}),
    ],
)
def test_tests_that_pass_with_stock_must_pass_with_ours(
    stock: dict[str, Result], ours: dict[str, Result], worse: dict[str, Result]
) -> None:
    assert compare(stock, {"z": GOOD, **ours}).worse == worse
    assert compare({"z": GOOD, **stock}, {"z": GOOD, **ours}).is_good is not bool(worse)


@pytest.mark.parametrize(
    ("test", "result", "is_meant"),
    [
        ("t/sqs.py::test_get", BAD, True),
        ("t/sqs.py::test_get_bulk[1]", BAD, True),
        ("t/sqs.py::test_get", OTHER, False),
        ("t/sqs.py::test_put", BAD, False),
    ],
)
def test_a_known_difference_excuses_its_tests_for_its_reason_only(
    test: str, result: Result, is_meant: bool
) -> None:
    comparison = compare({test: GOOD}, {"z": GOOD, test: result}, [META])
    assert comparison.is_good is is_meant
    assert comparison.meant == is_meant
    assert (test in comparison.worse) is not is_meant


def test_a_known_difference_that_is_gone_is_reported() -> None:
    comparison = compare({"a": GOOD}, {"a": GOOD}, [META])
    assert list(comparison.unused) == [META]
    assert not comparison.is_good


def test_a_suite_that_runs_nothing_proves_nothing() -> None:
    assert not compare({}, {}).is_good


def test_a_suite_in_which_nothing_passes_proves_nothing() -> None:
    assert not compare({"a": BAD}, {"a": BAD}).is_good


def test_tests_that_pass_with_ours_need_no_run_with_stock() -> None:
    comparison = compare({}, {"a": GOOD})
    assert comparison.is_good
    assert (comparison.ours, comparison.passed, comparison.stock) == (1, 1, 0)


def test_runs_and_passes_are_counted() -> None:
    comparison = compare({"b": BAD, "c": GOOD}, {"a": GOOD, "b": BAD, "c": OTHER})
    assert (comparison.ours, comparison.passed, comparison.stock) == (3, 1, 2)


@pytest.mark.parametrize("with_stock", [BAD, SKIPPED, None])
@pytest.mark.parametrize("with_ours", [BAD, SKIPPED])
def test_tests_that_pass_with_neither_are_listed(
    with_stock: Result | None, with_ours: Result
) -> None:
    stock = {"b": with_stock} if with_stock else {}
    comparison = compare(stock, {"a": GOOD, "b": with_ours})
    assert comparison.alike == {"b": with_ours}
    assert comparison.is_good


def test_tests_that_only_stock_has_and_fails_are_listed() -> None:
    assert compare({"b": BAD}, {"a": GOOD}).alike == {"b": MISSING}
