"""`python -m tests.peers`: run every suite with stock and with ours, and compare test by test."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.peers.comparing import PASSED, Comparison, compare
from tests.peers.running import run
from tests.peers.sources import FOLDER, fetch
from tests.peers.suites import SUITES, Suite

#: How often a test is run again with ours that passed with stock only: some race with either.
TRIES = 2


def judge(suite: Suite) -> Comparison:
    """Run a suite twice and compare."""
    folder, name = fetch(suite.package), re.sub(r"\W+", "-", suite.name)
    ours = (*suite.both, *suite.ours)
    _say(f"{suite.name} ...")
    # Side by side: the long ones mostly wait.
    with ThreadPoolExecutor() as both:
        with_stock = both.submit(run, suite, folder, FOLDER / f"{name}-stock.log", suite.both)
        results = run(suite, folder, FOLDER / f"{name}.log", ours)
        stock = with_stock.result()
    for attempt in range(TRIES):
        worse = compare(stock, results, suite.known).worse
        if not worse:
            break
        _say(f"{suite.name}: {len(worse)} once more ...")
        again = run(suite, folder, FOLDER / f"{name}-again-{attempt + 1}.log", ours, list(worse))
        results |= {test: each for test, each in again.items() if each.outcome == PASSED}
    return compare(stock, results, suite.known)


def table(rows: list[tuple[Suite, Comparison]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'suite':<36} {'passed stock':>12} {'passed ours':>12} {'meant':>6} {'worse':>6}"
    for suite, row in rows:
        yield (
            f"{suite.name:<36} {row.stock:>12} {row.ours:>12} {row.meant:>6} {len(row.worse):>6}"
        )
    for suite, row in rows:
        for reason in {known.reason: None for known in suite.known}:
            yield f"meant: {suite.name}: {reason}"
        for test, reason in suite.left_out.items():
            yield f"left out: {test}: {reason}"
        for test, result in row.worse.items():
            yield f"WORSE: {suite.name}: {test}\n{result.error[-2000:]}"
        for known in row.unused:
            yield f"NOT SEEN ANY MORE, take it out: {suite.name}: {known.reason}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run all suites, and print the table.

    Returns:
        0 where all is well.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    rows = [(suite, judge(suite)) for suite in SUITES]
    for line in table(rows):
        _say(line)
    _say(f"{(time.monotonic() - began) / 60:.1f} minutes; the logs are in {FOLDER}")
    return 0 if all(row.is_good for _, row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
