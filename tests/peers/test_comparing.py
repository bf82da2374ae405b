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
def test_what_passes_with_stock_must_pass_with_ours(
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
    comparison = compare({test: GOOD}, {test: result}, [META])
    assert comparison.is_good is is_meant
    assert comparison.meant == is_meant
    assert (test in comparison.worse) is not is_meant


def test_a_known_difference_that_is_gone_is_reported() -> None:
    comparison = compare({"a": GOOD}, {"a": GOOD}, [META])
    assert list(comparison.unused) == [META]
    assert not comparison.is_good


def test_a_suite_that_runs_nothing_proves_nothing() -> None:
    assert not compare({}, {}).is_good


def test_what_passed_is_counted() -> None:
    comparison = compare({"a": GOOD, "b": BAD}, {"a": GOOD, "b": GOOD})
    assert (comparison.stock, comparison.ours) == (1, 2)
