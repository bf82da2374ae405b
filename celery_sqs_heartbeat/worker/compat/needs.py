"""How a name of another package that we depend on is written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One name of Celery's, kombu's or another package's that we override or use.

    Attributes:
        owner: Its module, or `module:Class`.
        name: An attribute of the module, of the class, or of its instances.
        why: What we do with it.
        by: Our class that overrides it, as `module:Class`.
        call: The arguments that we give it, as `queue, callback=`; None where it is not called.
        since: The first version of its package that has it; older ones do without.
        instead: What would replace it, or "none: why". Of private names, and of public ones
            that we use in a way which their package does not document.
        only: What needs it, where that is not every worker. Such a name is not checked at a
            worker's start.
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
        """The package that it belongs to."""
        return self.owner.partition(".")[0].partition(":")[0]

    def __str__(self) -> str:
        return f"{self.owner}{'.' if ':' in self.owner else ':'}{self.name}"


def used(
    owner: str,
    *names: tuple[str, str] | tuple[str, str, str],
    since: tuple[int, int] | None = None,
) -> Iterator[Need]:
    """Yield the needs of names that we read, set or call: name, why, arguments if called."""
    for name, why, *call in names:
        yield Need(owner=owner, name=name, why=why, call=call[0] if call else None, since=since)


def overridden(owner: str, by: str, *names: tuple[str, str]) -> Iterator[Need]:
    """Yield the needs of names that a class of ours overrides: name, why."""
    for name, why in names:
        yield Need(owner=owner, name=name, why=why, by=by)


def internals(
    owner: str,
    *names: tuple[str, str, str] | tuple[str, str, str, str],
    by: str | None = None,
    since: tuple[int, int] | None = None,
    only: str | None = None,
) -> Iterator[Need]:
    """Yield the needs of names that may change with any release: private, or undocumented.

    Each is its name, why we need it, what would replace it, and its arguments if we call it.
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
