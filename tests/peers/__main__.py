"""`python -m tests.peers`: judge ours by every suite, side by side, and print what is worse."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.peers.judging import Comparison, judge
from tests.peers.running import FOLDER, fetch
from tests.peers.suites import SUITES, Suite


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
