"""Numbers in log lines and errors, as people write them."""

from __future__ import annotations


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: "1 message", "2 messages".

    Args:
        nouns: The plural, where it takes more than an s.
    """
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def seconds(value: float) -> str:
    """Return seconds with three digits, and no fewer than there are before the point."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
