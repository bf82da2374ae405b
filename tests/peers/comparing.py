"""What a suite's outcomes with ours say, beside those with stock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one test."""

    outcome: str
    error: str = ""


MISSING = Result("missing", "it was not run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A difference that is meant. A test that fails for another reason is not excused.

    Attributes:
        tests: Their ids, as a pattern.
        error: What its error has in it.
        reason: Why that is harmless.
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
        worse: Tests that pass with stock and not with ours, with what they say.
        meant: How many of them are differences that are known.
        unused: Known differences that are not there any more.
    """

    stock: int
    ours: int
    worse: Mapping[str, Result]
    meant: int
    unused: Sequence[Known]

    @property
    def is_good(self) -> bool:
        """Whether every test that passes with stock passes with ours, or is known not to."""
        return self.stock > 0 and not self.worse and not self.unused


def compare(
    stock: Mapping[str, Result], ours: Mapping[str, Result], known: Sequence[Known] = ()
) -> Comparison:
    """Compare a suite's outcomes."""
    failing = {
        test: ours.get(test, MISSING)
        for test, result in stock.items()
        if result.outcome == PASSED and ours.get(test, MISSING).outcome != PASSED
    }
    excuses = {
        test: excuse
        for test, result in failing.items()
        if (excuse := next((each for each in known if each.excuses(test, result)), None))
    }
    return Comparison(
        stock=_passed(stock),
        ours=_passed(ours),
        worse={test: result for test, result in failing.items() if test not in excuses},
        meant=len(excuses),
        unused=[each for each in known if each not in excuses.values()],
    )


def _passed(results: Mapping[str, Result]) -> int:
    return sum(result.outcome == PASSED for result in results.values())
