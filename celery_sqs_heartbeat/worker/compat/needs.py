"""Describes a name of another package that we depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One name of Celery, kombu or another package that we override or use.

    Attributes:
        owner: Its module, or `module:Class`.
        name: An attribute of the module, of the class, or of its instances.
        why: What we do with it.
        by: Our class that overrides it, as `module:Class`.
        call: The arguments that we pass, such as `queue, callback=`; None if we do not call it.
        since: The first version of its package that has it. On older ones we do not need it.
        instead: What would replace it, or "none: why". Set for private names, and for public
            names that we use in an undocumented way.
        only: What needs it, if not every worker does. A starting worker does not check such a
            name.
    """

    owner: str
    name: str
    why: str
    by: str | None = None
    call: str | None = None
    since: tuple[int, int] | None = None
    instead: str | None = None
    only: str | None = None

    @property
    def package(self) -> str:
        """The package that the name belongs to."""
        return self.owner.partition(".")[0].partition(":")[0]

    def __str__(self) -> str:
        return f"{self.owner}{'.' if ':' in self.owner else ':'}{self.name}"


def used(
    owner: str,
    *names: tuple[str, str] | tuple[str, str, str],
    since: tuple[int, int] | None = None,
) -> Iterator[Need]:
    """Yield needs for names that we read, set or call: name, why, arguments if called."""
    for name, why, *call in names:
        yield Need(owner=owner, name=name, why=why, call=call[0] if call else None, since=since)


def overridden(owner: str, by: str, *names: tuple[str, str]) -> Iterator[Need]:
    """Yield needs for names that our class overrides: name, why."""
    for name, why in names:
        yield Need(owner=owner, name=name, why=why, by=by)


def internals(
    owner: str,
    *names: tuple[str, str, str] | tuple[str, str, str, str],
    by: str | None = None,
    since: tuple[int, int] | None = None,
    only: str | None = None,
) -> Iterator[Need]:
    """Yield needs for names that any release may change: private ones and undocumented uses.

    Each entry has the name, why we need it, what would replace it, and the arguments of our call.
    """
    for name, why, instead, *call in names:
        yield Need(
            owner=owner,
            name=name,
            why=why,
            by=by,
            call=call[0] if call else None,
            since=since,
            instead=instead,
            only=only,
        )
