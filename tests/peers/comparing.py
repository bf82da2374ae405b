"""Compares a suite's outcomes with ours to those with stock of the tests that fail with ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Result:
    """What happened to one test."""

    outcome: str
    error: str = ""


MISSING = Result("missing", "it was not run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An intended difference. A test that fails for another reason is not excused.

    Attributes:
        tests: Their ids, as a pattern.
        error: What its error has in it.
        reason: Why it is harmless.
    """

    tests: str
    error: str
    reason: str

    def excuses(self, test: str, result: Result) -> bool:
        """Return whether that is why the test fails."""
        return fnmatchcase(test, self.tests) and self.error in result.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both outcomes of a suite, test by test.

    Attributes:
        ours: How many tests were run with ours.
        passed: How many of them passed.
        stock: How many were run with stock: those that did not pass with ours.
        worse: Tests that pass with stock and not with ours, with their errors.
        meant: How many of them are known differences.
        alike: Tests that pass with neither, with their results with ours.
        unused: Known differences that no longer exist.
    """

    ours: int
    passed: int
    stock: int
    worse: Mapping[str, Result]
    meant: int
    alike: Mapping[str, Result]
    unused: Sequence[Known]

    @property
    def is_good(self) -> bool:
        """Whether every test that passes with stock passes with ours, or is known not to."""
        return self.passed > 0 and not self.worse and not self.unused


def passed(results: Mapping[str, Result]) -> set[str]:
    """Return the tests that passed."""
    return {test for test, result in results.items() if result.outcome == PASSED}


def compare(
    stock: Mapping[str, Result], ours: Mapping[str, Result], known: Sequence[Known] = ()
) -> Comparison:
    """Compare a suite's outcomes. Tests that passed with ours can be missing with stock."""
    good = passed(ours)
    failing = {test: ours.get(test, MISSING) for test in stock if test not in good}
    failing |= {test: result for test, result in ours.items() if test not in good}
    lost = {test: failing[test] for test in passed(stock) - good}
    excuses = {
        test: excuse
        for test, result in lost.items()
        if (excuse := next((each for each in known if each.excuses(test, result)), None))
    }
    return Comparison(
        ours=len(ours),
        passed=len(good),
        stock=len(stock),
        worse={test: result for test, result in lost.items() if test not in excuses},
        meant=len(excuses),
        alike={test: result for test, result in failing.items() if test not in lost},
        unused=[each for each in known if each not in excuses.values()],
    )
