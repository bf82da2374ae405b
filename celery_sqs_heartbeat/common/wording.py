"""Formats numbers for log lines and errors."""

from __future__ import annotations


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: "1 message", "2 messages".

    Args:
        nouns: The plural, if it is not the noun with an s.
    """
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def seconds(value: float) -> str:
    """Return seconds with three significant digits, or rounded to whole seconds from 100 on."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
