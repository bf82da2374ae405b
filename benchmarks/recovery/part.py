"""The part `recovery`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.frame.part import Findings, Part, Picture, Size, Spread, Table
from benchmarks.frame.pictures import line_chart
from benchmarks.recovery.rounds import KINDS, Round, run
from benchmarks.recovery.scenarios import (
    FAILED,
    KILLED,
    LOST,
    OUTLASTING,
    POLLS,
    TWICE,
    WAITING,
)
from benchmarks.recovery.text import ABOUT, NOTES
from benchmarks.stage import stage

#: Visibility timeouts, in seconds. Short ones, because a stock worker's messages wait for them. But
#: what asks for 2 s or less counts as a release, not as an extension.
TIMEOUTS, TINY_TIMEOUTS = (5, 10, 20), (3,)
ROUNDS = 3
#: In the order of the table.
SCENARIOS = (KILLED, WAITING, OUTLASTING, FAILED, LOST)
STOCK, OURS = KINDS


def measure(size: Size) -> Findings:
    """Let everything fail, in several rounds."""
    timeouts, rounds = (TIMEOUTS, ROUNDS) if size is Size.FULL else (TINY_TIMEOUTS, 1)
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as opened:
        return findings(run(opened, timeouts, rounds), timeouts)


def findings(rounds: Sequence[Round], timeouts: Sequence[int]) -> Findings:
    """Return the tables, ratios and the picture of some rounds."""
    return Findings(
        tables=[
            _table(rounds, timeouts[-1]),
            _connection_table(rounds, timeouts[-1]),
        ],
        ratios={
            f"ours to stock, {name}, {timeouts[-1]} s": _ratios(rounds, timeouts[-1], name)
            for name in SCENARIOS
        },
        pictures=[_picture(rounds, timeouts)],
        notes=[*NOTES, _on_keepers(rounds, timeouts[0])],
    )


def _samples(rounds: Sequence[Round], kind: str, timeout: int, name: str) -> list[float]:
    return [each.figures[kind, timeout][name] for each in rounds]


def _ratios(rounds: Sequence[Round], timeout: int, name: str) -> list[float]:
    ours, stock = (_samples(rounds, kind, timeout, name) for kind in (OURS, STOCK))
    return [one / other for one, other in zip(ours, stock, strict=True)]


def _spread(rounds: Sequence[Round], kind: str, timeout: int, name: str) -> Spread:
    return Spread.of(_samples(rounds, kind, timeout, name))


def _table(rounds: Sequence[Round], timeout: int) -> Table:
    rows = [
        [name, *(str(_spread(rounds, kind, timeout, name)) for kind in KINDS)] for name in SCENARIOS
    ]
    title = f"Seconds until the message is received again, visibility timeout {timeout} s"
    return Table(title, ("", *KINDS), rows)


def _on_keepers(rounds: Sequence[Round], timeout: int) -> str:
    """Say what a killed keeper costs."""
    seconds = Spread.of([each.until_extended for each in rounds])
    redeliveries = sum(each.redeliveries for each in rounds)
    return f"""\
If a keeper is killed while a task runs, its worker starts another, which extends the message after
{seconds} s, with a visibility timeout of {timeout} s. Up to a second of that is the wait for the
next extension. In {len(rounds)} rounds, {redeliveries} messages were delivered again."""


def _connection_table(rounds: Sequence[Round], timeout: int) -> Table:
    rows = [
        [kind, *(f"{sum(_samples(rounds, kind, timeout, name)):g}" for name in (TWICE, POLLS))]
        for kind in KINDS
    ]
    title = f"Connection lost while a task runs, {len(rounds)} rounds"
    return Table(title, ("", TWICE, "worker receives again afterwards"), rows)


def _picture(rounds: Sequence[Round], timeouts: Sequence[int]) -> Picture:
    lines = {
        kind: [(timeout, _spread(rounds, kind, timeout, KILLED).median) for timeout in timeouts]
        for kind in KINDS
    }
    return line_chart(
        "recovery",
        lines,
        alt="Seconds until a killed worker's message is received again, by visibility timeout. The "
        "line of a stock worker rises with the timeout. That of this package stays near zero.",
        across="visibility timeout, seconds",
        up="seconds until received again",
    )


PART = Part("recovery", "Recovery", ABOUT, measure)
