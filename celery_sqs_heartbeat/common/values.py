"""Checks values that users give: numbers, names, and paths such as `proj.aws:new_session`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeGuard

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

#: A typo changes at most one character in this many, and one in a short name.
_CHARACTERS_PER_TYPO = 4


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number. `True` and `False` are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is of type int, but not bool."""
    return isinstance(value, int) and is_number(value)


class NotImportable(ValueError):
    """The path can't be imported. The message says why, and what to do."""


def is_path(value: object) -> bool:
    """Return whether a value is a path of the form `module:name`."""
    return isinstance(value, str) and _PATH.fullmatch(value) is not None


def import_named(path: str) -> Any:
    """Return the object that a `module:name` path names.

    Raises:
        NotImportable: The module can't be imported, or has no such name.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        raise NotImportable(
            f"can't be imported ({error}): name a function in a module that the worker can import"
        ) from error


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that takes the fewest changes to reach, or None if none is close.

    A name that omits whole words of a known one is close, too: "token" means "status_token". The
    caller must remove common prefixes, because they make all names look alike.
    """
    ranked = sorted((distance(name.lower(), each.lower()), each) for each in set(known))
    if ranked and ranked[0][0] <= max(1, len(name) // _CHARACTERS_PER_TYPO):
        return ranked[0][1]
    words = set(name.lower().split("_"))
    return next((each for _, each in ranked if words < set(each.lower().split("_"))), None)


def resembles(name: str, known: str) -> bool:
    """Return whether a name is the known one with one typo, or with its words reordered."""
    return name != known and (
        distance(name, known) == 1 or sorted(name.split("_")) == sorted(known.split("_"))
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a line that names the closest known name; empty if none is close."""
    close = closest(name, known)
    return "" if close is None else f"; did you mean {close!r}?"


def distance(one: str, other: str) -> int:
    """Return how many characters must be added, removed, replaced or swapped with the next."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
