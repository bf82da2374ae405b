"""Counts how often each cause of the table was used, and finds causes that explain too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.soak.audit import Verdict
from tests.soak.table import TABLE

#: A cause may be used so often in any soak, whatever its share: the kill of one worker that held
#: all waiting messages has caused up to 37 extra receives. In a small soak, a share means little.
ALWAYS = 25


def shares(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return how often each cause was used, with its share and limit, by name."""
    counts, total = _uses(verdicts), max(1, _extra_receives(verdicts))
    return {
        row.name: f"{counts[row.name]:6} {counts[row.name] / total:5.0%} of at most {row.share:.0%}"
        for row in TABLE
    }


def overused(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a fault for each cause that explains more of the extra receives than it may."""
    counts, total = _uses(verdicts), _extra_receives(verdicts)
    return [
        f'"{row.name}" explains {count} of {total} extra receives, {count / total:.0%}: '
        f"at most {row.share:.0%} may have that cause ({row.where})"
        for row in TABLE
        if (count := counts[row.name]) > max(ALWAYS, row.share * total)
    ]


def _uses(verdicts: Sequence[Verdict]) -> Counter[str]:
    return Counter(row.name for verdict in verdicts for row in verdict.rows)


def _extra_receives(verdicts: Sequence[Verdict]) -> int:
    return sum(len(verdict.redeliveries) for verdict in verdicts)
