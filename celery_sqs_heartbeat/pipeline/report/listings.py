"""Tables of the page: the content of their cells, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from celery_sqs_heartbeat.pipeline.report.charts import Beam

#: How a column's cells are shown: as text, as code, in bold, as a beam, or as labels. The label
#: "recommended" is in bold.
Kind = Literal["text", "code", "strong", "beam", "labels"]
#: The content of a cell.
Cell = str | Beam | Sequence[str]

#: With more columns, a phone shows each row as a list.
_NARROW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column by its name, which may be empty."""

    name: str
    kind: Kind
    is_number: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table. If it is too wide, it scrolls sideways, or its rows are shown as lists."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def is_list(self) -> bool:
        """Whether a phone shows each row as a list."""
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
        numbers: How many columns, from the last, contain numbers.
        kinds: How columns are shown that are not text, by name.
    """
    left = len(head) - numbers
    columns = [
        Column(name=name, kind=(kinds or {}).get(name, "text"), is_number=index >= left)
        for index, name in enumerate(head)
    ]
    return Listing(caption=caption, columns=columns, rows=rows)
