"""Checks for numbers in settings, options and arguments."""

from __future__ import annotations

from typing import TypeGuard


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number. `True` and `False` are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is of type int, but not bool."""
    return isinstance(value, int) and is_number(value)
