"""Compares the ratios of a run with those that were kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.frame.part import Spread

Ratios = dict[str, Spread]


@dataclass(frozen=True, slots=True)
class Move:
    """A ratio that moved by more than its spread."""

    ratio: str
    before: Spread
    now: Spread

    def __str__(self) -> str:
        return f"{self.ratio}: {self.before} before, {self.now} now"


def spreads(part: str, measured: Mapping[str, Sequence[float]]) -> Ratios:
    """Return the spread of each ratio of a part, by `part: ratio`."""
    return {f"{part}: {name}": Spread.of(samples) for name, samples in measured.items()}


def moves(before: Ratios, now: Ratios) -> list[Move]:
    """Return the ratios that moved by more than their spread.

    A ratio has moved if each median is outside the range of the other run. New and removed ratios
    have not moved.
    """
    return [
        Move(name, before[name], ratio)
        for name, ratio in now.items()
        if name in before and _is_outside(ratio, before[name]) and _is_outside(before[name], ratio)
    ]


def load(path: Path) -> Ratios:
    """Return the kept ratios.

    Raises:
        ValueError: The file is not such a file.
    """
    if not path.exists():
        return {}
    try:
        return {name: Spread(**spread) for name, spread in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: is no baseline ({error}): restore or remove it") from error


def keep(path: Path, before: Ratios, now: Ratios, part: str) -> None:
    """Replace the kept ratios of a part."""
    kept = {name: each for name, each in before.items() if not name.startswith(f"{part}: ")}
    lines = [
        f" {json.dumps(name)}: {json.dumps(_rounded(each))}"
        for name, each in sorted({**kept, **now}.items())
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _rounded(spread: Spread) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(spread).items()}


def _is_outside(one: Spread, other: Spread) -> bool:
    return not other.low <= one.median <= other.high
