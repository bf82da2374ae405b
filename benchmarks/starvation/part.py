"""The part `starvation`."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.frame.part import Findings, Part, Size, Table
from benchmarks.stage import stage
from benchmarks.starvation.cases import Case, run_all
from benchmarks.starvation.text import ABOUT, NOTES

POOLS, TINY_POOL = ("prefork", "threads", "gevent", "solo"), "threads"
#: The visibility timeout, in seconds. What asks for 2 s or less counts as a release, not as an
#: extension.
TIMEOUT, TINY_TIMEOUT = 4, 3
ROUNDS = 2
#: By whether they are ours.
NAMES = {False: "thread for each task", True: "this package"}


def measure(size: Size) -> Findings:
    """Run every case, in several rounds."""
    if size is Size.FULL:
        cases = [Case(*each) for each in itertools.product(POOLS, (False, True), NAMES)]
        timeout, rounds = TIMEOUT, ROUNDS
    else:
        cases = [Case(TINY_POOL, blocks=True, ours=ours) for ours in NAMES]
        timeout, rounds = TINY_TIMEOUT, 1
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as opened:
        return findings(run_all(opened, cases, timeout, rounds), timeout)


def findings(rounds: Sequence[Mapping[Case, int]], timeout: int) -> Findings:
    """Return the table and the ratios of some rounds."""
    cases = list(rounds[0])
    return Findings(
        tables=[_table(rounds, timeout)],
        ratios={
            f"messages delivered twice, {NAMES[case.ours]}, {case.pool}": [
                each[case] / case.tasks for each in rounds
            ]
            for case in cases
            if case.blocks
        },
        notes=NOTES,
    )


def _table(rounds: Sequence[Mapping[Case, int]], timeout: int) -> Table:
    cases = list(rounds[0])
    kinds = list(dict.fromkeys((case.blocks, case.ours) for case in cases))
    rows = [
        [
            pool,
            *(_delivered_twice(rounds, Case(pool, blocks, ours)) for blocks, ours in kinds),
        ]
        for pool in dict.fromkeys(case.pool for case in cases)
    ]
    columns = [
        f"{'one task keeps the lock' if blocks else 'all tasks wait'}, {NAMES[ours]}"
        for blocks, ours in kinds
    ]
    title = f"Messages delivered more than once, visibility timeout {timeout} s"
    return Table(f"{title}, {len(rounds)} rounds", ("pool", *columns), rows)


def _delivered_twice(rounds: Sequence[Mapping[Case, int]], case: Case) -> str:
    return f"{sum(each[case] for each in rounds)} of {case.tasks * len(rounds)}"


PART = Part("starvation", "Tasks that keep Python's lock", ABOUT, measure)
