"""What a group of tests cost, in this run and the last one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

#: A run that needs this many times the CPU of the last run is reported.
MORE = 1.5
#: Below this much CPU, in seconds, differences are random.
SMALL = 5.0


@dataclass(frozen=True)
class Cost:
    """Seconds of elapsed time, and seconds of CPU."""

    seconds: float
    cpu_seconds: float

    def write(self, folder: Path, group: str) -> None:
        """Store it as the cost of the current run."""
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{group}.draft"
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder / f"{group}.json")


def read(path: Path) -> Cost | None:
    """Return the stored cost, or None if there is none or it can't be read."""
    try:
        cost = Cost(**json.loads(path.read_text()))
        return cost if cost.cpu_seconds >= 0 <= cost.seconds else None
    except (OSError, ValueError, TypeError):
        return None


def show(folder: Path, groups: Iterable[str]) -> str:
    """Return a table of the costs, with a line about each group that needs much more CPU."""
    lines = [f"{'':20}{'minutes':>9}{'CPU, s':>9}{'last time':>11}"]
    reports, total = [], 0.0
    for group in groups:
        cost, last = read(folder / f"{group}.json"), read(folder / f"{group}.last")
        if cost is None:
            lines.append(f"{group:20}{'did not run':>18}")
            continue
        total += cost.cpu_seconds
        before = f"{last.cpu_seconds:.0f}" if last else "-"
        lines.append(f"{group:20}{cost.seconds / 60:9.1f}{cost.cpu_seconds:9.0f}{before:>11}")
        if last and cost.cpu_seconds > max(MORE * last.cpu_seconds, SMALL):
            reports.append(
                f"{group} needed {cost.cpu_seconds / max(last.cpu_seconds, 0.1):.1f} times the CPU "
                "of its last run: see the slowest tests in its output"
            )
    return "\n".join([*lines, f"{'all':20}{'':9}{total:9.0f}", *reports])


def take_over(folder: Path, groups: Iterable[str]) -> None:
    """Make the current run the last one."""
    for group in groups:
        current = folder / f"{group}.json"
        if current.exists():
            current.rename(folder / f"{group}.last")
