"""Judges ours by a suite of another project.

Ours runs all of it. Stock runs what did not pass with ours, whatever the reason: it failed, was
skipped, or was not there at all. So stock costs next to nothing where all is well, and no loss is
hidden: a test that passes with ours says all that it has to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peers.running import MISSING, Result, passed, run
from tests.peers.suites import Known, Suite

#: How often a test that passed only with stock is run again with ours: some are flaky with either.
TRIES = 2


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


def judge(suite: Suite, folder: Path, logs: Path, say: Callable[[str], None]) -> Comparison:
    """Run a suite with ours, and with stock what did not pass, and compare.

    Args:
        folder: Where its tests are.
        logs: The folder for what pytest writes.
        say: Called with each step.
    """
    with_ours = (*suite.both, *suite.ours)
    say(f"{suite.name} ...")
    ours = run(suite, folder, logs / f"{suite.slug}.log", with_ours, shards=suite.shards)
    say(f"{suite.name}: {len(ours) - len(passed(ours))} did not pass; with stock ...")
    stock = run(suite, folder, logs / f"{suite.slug}-stock.log", suite.both, without=passed(ours))
    for attempt in range(TRIES):
        worse = compare(stock, ours, suite.known).worse
        if not worse:
            break
        say(f"{suite.name}: {len(worse)} once more ...")
        log = logs / f"{suite.slug}-again-{attempt + 1}.log"
        again = run(suite, folder, log, with_ours, without={*stock, *ours} - {*worse})
        ours |= {test: again[test] for test in passed(again)}
    return compare(stock, ours, suite.known)


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
        if (excuse := next((each for each in known if each.excuses(test, result.error)), None))
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
