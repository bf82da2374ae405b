"""Imports objects that users name by a path, such as `proj.aws:new_session`."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


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
