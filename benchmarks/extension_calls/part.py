"""The part `extension-calls`."""

from __future__ import annotations

from benchmarks.extension_calls.counts import (
    OURS,
    PEERS,
    TIMEOUTS,
    WAYS,
    Counts,
    count,
)
from benchmarks.extension_calls.queue import LITTLE
from benchmarks.extension_calls.text import ABOUT, NOTES, median, on_safety
from benchmarks.frame.part import Findings, Part, Picture, Size, Spread, Table
from benchmarks.frame.pictures import line_chart

#: For how many seconds calls are counted, by the mean number of messages in flight.
WINDOWS = {10: 7_200.0, 40: 3_600.0, 100: 1_200.0, 1_000: 600.0}
ROUNDS = 3
TINY_WINDOWS = {10: 300.0, 40: 60.0}


def measure(size: Size) -> Findings:
    """Play all traces. The same seeds give the same figures on every machine."""
    counts = count(WINDOWS, ROUNDS) if size is Size.FULL else count(TINY_WINDOWS, 1)
    return Findings(
        tables=[_bound_table(counts, TIMEOUTS[0]), _cost_table(counts, TIMEOUTS[0])],
        ratios=_ratios(counts),
        pictures=[_picture(counts)],
        notes=[on_safety(counts), *NOTES],
    )


def _bound_table(counts: Counts, timeout: int) -> Table:
    rows = [
        [
            way.name,
            f"{way.longest(timeout):g} s",
            *(str(Spread.of(counts.to_bound(way, timeout, size))) for size in counts.sizes),
        ]
        for way in WAYS
    ]
    columns = ("", "period", *(f"{size:,} in flight" for size in counts.sizes))
    return Table(f"Calls as a multiple of the bound, visibility timeout {timeout} s", columns, rows)


def _cost_table(counts: Counts, timeout: int) -> Table:
    few, many = counts.sizes[0], counts.sizes[-1]
    rows = []
    for way in WAYS:
        tallies = [each.tally for each in counts.of(way, timeout)]
        rows.append(
            [
                way.name,
                *(median(counts.per_hour(way, timeout, size)) for size in (few, many)),
                f"{min(each.least_left for each in tallies):.1f} s",
                _percent(sum(t.late for t in tallies), sum(t.extensions for t in tallies)),
                _percent(sum(t.lapsed for t in tallies), sum(t.ended for t in tallies)),
            ]
        )
    columns = (
        "",
        f"calls per message and hour, {few:,} in flight",
        f"{many:,} in flight",
        "least time left at an extension",
        f"extensions with less than {LITTLE:g} s left",
        "messages lost",
    )
    return Table(f"Calls and safety, visibility timeout {timeout} s", columns, rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %" if part else "0"


def _ratios(counts: Counts) -> dict[str, list[float]]:
    ratios = {
        f"ours to the bound, {timeout} s, {size} in flight": counts.to_bound(OURS, timeout, size)
        for timeout in TIMEOUTS
        for size in counts.sizes
    }
    for peer in PEERS:
        for size in counts.sizes:
            name = f"{peer.name} to ours, {TIMEOUTS[0]} s, {size} in flight"
            ratios[name] = counts.to_ours(peer, TIMEOUTS[0], size)
    return ratios


def _picture(counts: Counts) -> Picture:
    timeout = TIMEOUTS[0]
    lines = {
        way.name.replace("`", ""): [
            (size, Spread.of(counts.per_hour(way, timeout, size)).median) for size in counts.sizes
        ]
        for way in WAYS
    }
    return line_chart(
        "extension-calls",
        lines,
        alt="Calls per message and hour, by messages in flight: one line for each library. "
        "The lines of libraries with batches fall as messages become more. Those of libraries with "
        "a timer for each message stay level.",
        across=f"messages in flight (visibility timeout {timeout} s)",
        up="calls per message and hour",
        log_across=True,
        log_up=True,
    )


PART = Part(
    "extension-calls",
    "Calls to keep messages extended",
    ABOUT,
    measure,
)
