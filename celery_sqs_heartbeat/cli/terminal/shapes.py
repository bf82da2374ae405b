"""The shapes that commands print. Another module lays them out.

Texts may be names that others chose: characters that do more than be seen are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.common.escaping import escaped


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a text looks where there are colours.

    Attributes:
        color: One of ANSI's eight names, which click and rich share.
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
        """The text, without characters that do more than be seen."""
        return escaped(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows below the names of their columns; the last `numbers` columns hold numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Styled]]
    numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One of several things that are explained.

    Attributes:
        head: What is so, in a sentence.
        items: What it is so for, where that takes a list.
        details: More sentences, by their labels.
        reference: What to look it up by.
    """

    label: Styled
    head: str
    items: Sequence[str] = ()
    details: Sequence[tuple[str, str]] = ()
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """Things that are explained, one below the other.

    Attributes:
        heading: What they are, where they have a heading.
        reference: What their references are, likewise.
    """

    heading: str
    reference: str
    parts: Sequence[Explanation]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines, one below the other."""

    lines: Sequence[Styled]


def sentence(text: str) -> str:
    """Return a text to be wrapped, without line breaks and what does more than be seen."""
    return escaped(" ".join(text.split()))


#: What an empty line separates from the next.
Block = Table | Explanations | Lines
