"""Judges ours by a suite of another project.

Ours runs all of it. Stock runs what did not pass with ours, whatever the reason: it failed, was
skipped, or was not there at all. So stock costs next to nothing where all is well, and no loss is
hidden: a test that passes with ours says all that it has to say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.peers.comparing import Comparison, compare, passed
from tests.peers.running import run
from tests.peers.suites import Suite

#: How often a test that passed only with stock is run again with ours: some are flaky with either.
TRIES = 2


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
