"""An enum for dictionaries and sets that are looked into all the time."""

from __future__ import annotations

import enum


class IdentityEnum(enum.Enum):
    """An enum whose members hash by identity, as each of them exists once.

    The hash of `Enum` is a function in Python, and each extension of a lease needs fifteen hashes.
    """

    __hash__ = object.__hash__
