"""Shows what was measured: tables, ratios, the picture and the notes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import attrgetter

from benchmarks.frame.part import Picture, Spread, Table, digits
from benchmarks.frame.pictures import line_chart
from benchmarks.scale.adapters import TERMS
from benchmarks.scale.kept import CYCLE
from benchmarks.scale.messages import HANDLE_LENGTH
from benchmarks.scale.running import Round

#: The bytes of a receipt handle, a message id and a task id.
_TEXTS = sum(map(sys.getsizeof, ("h" * HANDLE_LENGTH, "i" * 36, "t" * 36)))


def call_table(calls: Sequence[tuple[float, float]]) -> Table:
    """Return the CPU of calls alone."""
    ours, by_boto3 = zip(*calls, strict=True)
    return Table(
        "Calls of ten entries, one after another, answered at once",
        ["", "by the keeper", "by boto3"],
        [["CPU ms", str(Spread.of(ours)), str(Spread.of(by_boto3))]],
    )


def cost_table(rounds: Sequence[Round], sizes: Sequence[int]) -> Table:
    """Return the CPU and the memory of keepers."""
    rows = [
        [
            f"{leases:,}",
            *(str(_spread(rounds, leases, of)) for of in ("share", "call_ms", "resident")),
        ]
        for leases in sizes
    ]
    columns = ["leases", "% of a core", "CPU ms a call", "bytes a lease"]
    return Table("The keeper's process", columns, rows)


def ratios(
    calls: Sequence[tuple[float, float]], rounds: Sequence[Round], sizes: Sequence[int]
) -> dict[str, list[float]]:
    """Return the ratios of each round."""
    most, fewer = sizes[-1], sizes[-2]
    return {
        "CPU of a call, by boto3 to the keeper's": [by_boto3 / ours for ours, by_boto3 in calls],
        f"CPU of an extension, {most:,} leases to {fewer:,}": [
            each[most].per_extension / each[fewer].per_extension for each in rounds
        ],
    }


def picture(rounds: Sequence[Round], sizes: Sequence[int]) -> Picture:
    """Draw the CPU by the number of leases."""
    return line_chart(
        "scale",
        {"keeper": [(leases, _spread(rounds, leases, "share").median) for leases in sizes]},
        alt="The CPU of a keeper grows in proportion to the number of its leases.",
        across="leases",
        up="CPU, % of a core",
        log_across=True,
        log_up=True,
    )


def notes(
    rounds: Sequence[Round], sizes: Sequence[int], traced: float, traced_leases: int
) -> list[str]:
    """Return what the figures show and what they do not."""
    most = sizes[-1]
    kept = [each[leases] for each in rounds for leases in sizes]
    extended, late, expired = (
        digits(sum(map(attrgetter(of), kept))) for of in ("extended", "late", "expired")
    )
    return [
        f"Each round lasts {rounds[0][most].seconds:.0f} s. The extensions come at their usual "
        f"rate: {most / CYCLE:,.0f} a second for {most:,} leases. Of {extended} extensions, {late} "
        f"came with less than {TERMS.threshold / 2:.0f} s left, and {expired} leases expired. A "
        "call costs less CPU soon after another one, because the code is still in the processor's "
        "caches.",
        "What a worker's keeper does besides is not measured: it talks to the worker, writes the "
        "board, and may write a journal and serve metrics. Real calls go through TLS, which costs "
        "more.",
        f"Of a lease's bytes, {digits(traced)} are its records in the book, once it was extended "
        f"(measured with {traced_leases:,} leases), and {digits(_TEXTS)} are texts from SQS: its "
        f"handle, of {HANDLE_LENGTH} characters, and its ids.",
    ]


def _spread(rounds: Sequence[Round], leases: int, of: str) -> Spread:
    return Spread.of([getattr(each[leases], of) for each in rounds])
