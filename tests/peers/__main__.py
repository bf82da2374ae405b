"""`python -m tests.peers`: judge ours by every suite, side by side, and print what is worse.

Ours runs all of a suite. Stock runs what did not pass with ours, whatever the reason: it failed,
was skipped, or was not there at all. So stock costs next to nothing where all is well, and no loss
is hidden: a test that passes with ours says all that it has to say.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.peers.running import FOLDER, MISSING, Result, fetch, passed, run
from tests.peers.suites import SUITES, Known, Suite

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


def table(rows: list[tuple[Suite, Comparison]]) -> Iterator[str]:
    """Yield the lines of the table.

    With stock, only those tests are run that did not pass with ours. `alike` did not pass there
    either, `meant` and `worse` did.
    """
    yield (
        f"{'suite':<36} {'ours':>6} {'passed':>7} {'not, so with stock':>19} {'alike':>6} "
        f"{'meant':>6} {'worse':>6}"
    )
    for suite, row in rows:
        yield (
            f"{suite.name:<36} {row.ours:>6} {row.passed:>7} {row.stock:>19} {len(row.alike):>6} "
            f"{row.meant:>6} {len(row.worse):>6}"
        )
    for suite, row in rows:
        for reason in {known.reason: None for known in suite.known}:
            yield f"meant: {suite.name}: {reason}"
        for test, reason in suite.left_out.items():
            yield f"left out: {test}: {reason}"
        for test, result in row.alike.items():
            yield f"alike, {result.outcome}: {suite.name}: {test}"
        for test, result in row.worse.items():
            yield f"WORSE: {suite.name}: {test}\n{result.error[-2000:]}"
        for known in row.unused:
            yield f"NOT SEEN ANY MORE, take it out: {suite.name}: {known.reason}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Judge by all suites, and print the table.

    Returns:
        0 where all is well.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    folders = {package: fetch(package) for package in sorted({each.package for each in SUITES})}
    with ThreadPoolExecutor(len(SUITES)) as side_by_side:
        judged = side_by_side.map(
            lambda suite: judge(suite, folders[suite.package], FOLDER, _say), SUITES
        )
        rows = list(zip(SUITES, judged, strict=True))
    for line in table(rows):
        _say(line)
    _say(f"{(time.monotonic() - began) / 60:.1f} minutes; the logs are in {FOLDER}")
    return 0 if all(row.is_good for _, row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
