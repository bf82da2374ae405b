"""The blocks that commands print. Other modules lay them out.

Texts may contain names that strangers chose, so control characters and the like are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.common.escaping import escaped


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a text looks on a terminal with colors.

    Attributes:
        color: One of ANSI's eight color names, which click and rich share.
    """

    color: str | None = None
    bold: bool = False
    dim: bool = False


@dataclass(frozen=True, slots=True)
class Styled:
    """A text of one line in one style."""

    text: str
    style: Style = Style()

    @property
    def shown(self) -> str:
        """The text, with control characters and the like escaped."""
        return escaped(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows below the names of their columns; the last `numbers` columns hold numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Styled]]
    numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A headline with details.

    Attributes:
        head: The headline, a sentence.
        items: The list below the headline, if any.
        details: More sentences, with their labels.
        reference: The id under which it is documented.
    """

    label: Styled
    head: str
    items: Sequence[str] = ()
    details: Sequence[tuple[str, str]] = ()
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """Several explanations, one below the other.

    Attributes:
        heading: The heading of the explanations, if the layout has one.
        reference: The heading of their references, if the layout has one.
    """

    heading: str
    reference: str
    parts: Sequence[Explanation]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines, one below the other."""

    lines: Sequence[Styled]


def sentence(text: str) -> str:
    """Return a text on one line, with control characters and the like escaped."""
    return escaped(" ".join(text.split()))


#: One part of the output. An empty line separates it from the next.
Block = Table | Explanations | Lines
