"""The results of checks: kinds of findings, with their ids, and single findings."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace


class Severity(enum.Enum):
    """How severe a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


#: The name of a setting, with keys in it, before its value or its fault.
_SETTING = re.compile(r"(?:task '.*?': )?\w+(?:\[[^\]]*\])*(?=[=:])")
_LETTERS = {"E": Severity.ERROR, "W": Severity.WARNING, "I": Severity.INFO, "P": Severity.OK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check.

    Attributes:
        id: Never changes its meaning, so scripts can rely on it.
        title: What is the case.
        why: Why it matters.
        fix: What to do; empty if nothing.
        queue: The queue that the finding is about, as Celery names it.
        setting: The setting that the finding is about.
        value: The value that was found, as text. If it begins with the setting's name, it is a
            complete sentence.
    """

    severity: Severity
    id: str
    title: str
    why: str
    fix: str
    queue: str | None = None
    setting: str | None = None
    value: str | None = None

    def naming(self, rename: Callable[[str], str]) -> Finding:
        """Return the finding with `rename` applied to each of its texts."""
        return replace(
            self,
            title=rename(self.title),
            why=rename(self.why),
            fix=rename(self.fix),
            setting=self.setting and rename(self.setting),
            value=self.value and rename(self.value),
        )

    def as_plain(self) -> dict[str, str | None]:
        """Return the finding as its JSON object."""
        return {**asdict(self), "severity": self.severity.value}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding. The letter in its id is its severity: E, W, I, or P (passed)."""

    id: str
    title: str
    why: str
    fix: str = ""

    @property
    def severity(self) -> Severity:
        """The severity, read from the id."""
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


def of_fault(kind: Kind, fault: str, *, queue: str | None = None) -> Finding:
    """Return a finding for a sentence that begins with the name of a setting."""
    name = _SETTING.match(fault)
    return kind.found(queue=queue, setting=name and name[0], value=fault)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity, then in the order of their ids and queues."""
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return sorted(findings, key=lambda f: (ranks[f.severity], f.id[-3:], _natural(f.queue or "")))


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts q2 before q10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]
