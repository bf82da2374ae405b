"""Tables of the page: what is in their cells, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from celery_sqs_heartbeat.pipeline.report.charts import Beam

#: How a column's cells are shown: as text, as code, in bold, as a beam, or as labels of which
#: the first is in bold where it is the one that matters.
Kind = Literal["text", "code", "strong", "beam", "labels"]
#: What is in a cell.
Cell = str | Beam | Sequence[str]

#: Of more columns a telephone shows each row as a list.
_NARROW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column by its name, which may be empty."""

    name: str
    kind: Kind
    is_number: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table. Where it is too wide, it scrolls sideways, or is a list of its rows."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def is_list(self) -> bool:
        """Whether a telephone shows each row as a list."""
        return len(self.columns) > _NARROW


def listing(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    numbers: int = 0,
    kinds: Mapping[str, Kind] | None = None,
) -> Listing:
    """Return a table.

    Args:
        head: Names of the columns.
        numbers: How many of the columns, the last ones, hold numbers.
        kinds: How the columns are shown that are not text, by their names.
    """
    left = len(head) - numbers
    columns = [
        Column(name=name, kind=(kinds or {}).get(name, "text"), is_number=index >= left)
        for index, name in enumerate(head)
    ]
    return Listing(caption=caption, columns=columns, rows=rows)
