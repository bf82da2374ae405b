"""Known differences of the servers from AWS, noted at each behaviour.

Each is tested too: the behaviour's test must fail on that server, or the note is outdated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Behaviour = TypeVar("Behaviour", bound=Callable[..., None])

#: The versions that the differences were measured with.
MEASURED = {"moto": "5.2.5", "ministack": "1.5.33", "localstack": "4.13.1"}
#: What each server does instead: by behaviour, then by server.
KNOWN: dict[str, dict[str, str]] = {}


def differs(**instead: str) -> Callable[[Behaviour], Behaviour]:
    """Note what servers do instead of a behaviour."""
    assert instead.keys() <= MEASURED.keys()

    def note(behaviour: Behaviour) -> Behaviour:
        KNOWN[behaviour.__name__] = instead
        return behaviour

    return note
