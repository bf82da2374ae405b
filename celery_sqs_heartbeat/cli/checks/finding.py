"""What a check finds: the kinds of findings, with their ids, and single findings."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass


class Severity(enum.Enum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


_LETTERS = {"E": Severity.ERROR, "W": Severity.WARNING, "I": Severity.INFO, "P": Severity.OK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found.

    Attributes:
        id: Never changes its meaning, for scripts to go by.
        title: What is so.
        why: Why it matters.
        fix: What to do; empty where nothing need be done.
        queue: The queue it is about, as Celery names it.
        setting: The setting it is about.
        value: The value that was found, as text.
    """

    severity: Severity
    id: str
    title: str
    why: str
    fix: str
    queue: str | None = None
    setting: str | None = None
    value: str | None = None

    def as_plain(self) -> dict[str, str | None]:
        """Return it as JSON has it."""
        return {**asdict(self), "severity": self.severity.value}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding; the letter in its id is its severity: E, W, I, or P (passed)."""

    id: str
    title: str
    why: str
    fix: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return _LETTERS[self.id.rpartition("-")[2][0]]

    def found(
        self, *, queue: str | None = None, setting: str | None = None, value: object = None
    ) -> Finding:
        """Return a finding of this kind."""
        return Finding(
            severity=self.severity,
            id=self.id,
            title=self.title,
            why=self.why,
            fix=self.fix,
            queue=queue,
            setting=setting,
            value=None if value is None else str(value),
        )


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity, then in the order of their ids and queues."""
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return sorted(findings, key=lambda f: (ranks[f.severity], f.id[-3:], f.queue or ""))
