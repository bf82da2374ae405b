"""Checks values that users give: numbers, names, and paths such as `proj.aws:new_session`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from importlib import import_module
from typing import Any, TypeGuard

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

#: The part of two names that must be equal for one to be a misspelling of the other.
_ALIKE = 0.7
#: The same for a long name with one typo.
_SAME = 0.9


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
    """Return the known name that is most like a name, or None if none is close.

    A name that omits whole words of a known one is close, too: "token" means "status_token". The
    caller must remove common prefixes, because they make all names look alike.
    """
    by_lower = {each.lower(): each for each in sorted(known)}
    if close := get_close_matches(name.lower(), by_lower, n=1, cutoff=_ALIKE):
        return by_lower[close[0]]
    words = set(name.lower().split("_"))
    return next((each for lower, each in by_lower.items() if words < set(lower.split("_"))), None)


def resembles(name: str, known: str) -> bool:
    """Return whether a long name is the known one with one typo, or with its words reordered."""
    is_typo = SequenceMatcher(None, name, known).ratio() > _SAME
    return name != known and (is_typo or sorted(name.split("_")) == sorted(known.split("_")))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a line that names the closest known name; empty if none is close."""
    close = closest(name, known)
    return "" if close is None else f"; did you mean {close!r}?"
