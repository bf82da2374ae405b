"""Checks values that users give: numbers, and paths to objects, such as `proj.aws:new_session`."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, TypeGuard

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


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
