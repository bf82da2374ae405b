"""What a check finds: the kinds of findings, with their ids, and single findings."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace


class Severity(enum.Enum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


#: The name of a setting, and of what in it, before its value or what is wrong with it.
_SETTING = re.compile(r"(?:task '.*?': )?\w+(?:\[[^\]]*\])*(?=[=:])")
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
        setting: The setting it is about. A value that begins with it says all that was found.
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

    def naming(self, rename: Callable[[str], str]) -> Finding:
        """Return it with each of its texts as `rename` has them."""
        return replace(
            self,
            title=rename(self.title),
            why=rename(self.why),
            fix=rename(self.fix),
            setting=self.setting and rename(self.setting),
            value=self.value and rename(self.value),
        )

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


def of_fault(kind: Kind, fault: str, *, queue: str | None = None) -> Finding:
    """Return a finding of a sentence that begins with the name of a setting."""
    name = _SETTING.match(fault)
    return kind.found(queue=queue, setting=name and name[0], value=fault)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity, then in the order of their ids and queues."""
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return sorted(findings, key=lambda f: (ranks[f.severity], f.id[-3:], _natural(f.queue or "")))


def _natural(name: str) -> list[tuple[str, int]]:
    """Return what sorts q2 before q10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]
