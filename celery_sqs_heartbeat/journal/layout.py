"""The paths of a journal's segments: FOLDER/dt=YYYY-MM-DD/worker=<wid>/seg-N.jsonl.zst.

The lists are for readers of journals. A worker finds its own segments with `rooted`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Suffix of a segment that is being written.
OPEN_SUFFIX = ".jsonl.open"
#: Suffix of a segment that is finished and compressed.
CLOSED_SUFFIX = ".jsonl.zst"

_DAY_MICROSECONDS = 86_400_000_000
#: A day in a folder's name. Python itself accepts other forms of ISO 8601, too.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()


def day_of(ts: int) -> str:
    """Return the UTC day of a time in microseconds, as YYYY-MM-DD."""
    return datetime.date.fromordinal(_EPOCH_DAY + ts // _DAY_MICROSECONDS).isoformat()


def date_of(day: str) -> datetime.date:
    """Return the date of a folder's name, without its `dt=`.

    Raises:
        ValueError: It is not a valid day. The message continues a sentence that starts with the
            folder's path.
    """
    try:
        if _DATE.fullmatch(day):
            return datetime.date.fromisoformat(day)
    except ValueError:
        pass
    raise ValueError(no_day_text(day))


def no_day_text(day: str) -> str:
    """Return the fault of a path that has a folder with an invalid day, and the way out."""
    return f"has a folder dt={day}, which is not a valid day: move it away"


def segment_path(day: str, wid: str, number: int) -> Path:
    """Return the path of an open segment, relative to the journal's folder."""
    return Path(f"dt={day}", f"worker={wid}", f"seg-{number}{OPEN_SUFFIX}")


def hidden(name: str) -> str:
    """Return the name of a file until it is complete. Readers skip it."""
    return f".{name}"


def closed_path(path: Path) -> Path:
    """Return the path of an open segment after it is closed."""
    return path.with_name(closed_name(path.name))


def closed_name(name: str) -> str:
    """Return the name of an open segment after it is closed."""
    return name.removesuffix(OPEN_SUFFIX) + CLOSED_SUFFIX


def is_segment(name: str) -> bool:
    """Return whether a file is a segment, open or closed, by its name."""
    return name.startswith("seg-") and name.endswith((OPEN_SUFFIX, CLOSED_SUFFIX))


def open_segments(folder: Path, day: str = "*") -> list[Path]:
    """Return the open segments, in order; only those of a day, if one is given."""
    return ordered(folder.glob(f"dt={day}/worker=*/seg-*{OPEN_SUFFIX}"))


def closed_segments(folder: Path) -> list[Path]:
    """Return the closed segments, in order."""
    return ordered(folder.glob(f"dt=*/worker=*/seg-*{CLOSED_SUFFIX}"))


def all_segments(folder: Path) -> Iterator[Path]:
    """Return each segment once, in order: by day, worker and number."""
    # List open ones first, so a segment that is closed meanwhile is in at least one list.
    still_open, closed = open_segments(folder), closed_segments(folder)
    shown = set(closed)
    left = [path for path in still_open if closed_path(path) not in shown]
    yield from ordered([*closed, *left])


def ordered(paths: Iterable[Path]) -> list[Path]:
    """Return segments by day, worker and number."""
    return sorted(paths, key=lambda path: (path.parts[-3:-1], _number(path)))


def _number(path: Path) -> int:
    number = path.name.removeprefix("seg-").split(".", 1)[0]
    return int(number) if number.isdecimal() else 0
