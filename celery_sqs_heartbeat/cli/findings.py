"""The doctor's rules and what they find, for people and for scripts."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from celery_sqs_heartbeat.cli.output import Styled, explanation
from celery_sqs_heartbeat.common.escaping import counted


class Severity(enum.Enum):
    """How severe a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


#: The name of a setting, with keys in it, before its value or its fault.
_SETTING = re.compile(r"(?:task '.*?': )?\w+(?:\[[^\]]*\])*(?=[=:])")
_LETTERS = {"E": Severity.ERROR, "W": Severity.WARNING, "I": Severity.INFO, "P": Severity.OK}
#: A severity's label, and what to call one or several such findings.
_SHOWN = {
    Severity.ERROR: (Styled("ERROR", "red"), "error", "errors"),
    Severity.WARNING: (Styled("WARNING", "yellow"), "warning", "warnings"),
    Severity.INFO: (Styled("NOTE", "cyan"), "note", "notes"),
    Severity.OK: (Styled("OK", "green"), "check passed", "checks passed"),
}
#: The texts of each rule without docstrings.
_NO_TEXTS = "Python's option -OO removed the reason. Fix: Run the doctor without -OO."


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
        names = ("title", "why", "fix", "setting", "value")
        renamed: dict[str, Any] = {
            name: rename(text) for name in names if (text := getattr(self, name))
        }
        return replace(self, **renamed)

    def as_plain(self) -> dict[str, str | None]:
        """Return the finding as its JSON object."""
        return {**asdict(self), "severity": self.severity.value}


class Found(NamedTuple):
    """What a rule found, and where."""

    setting: str | None = None
    value: object = None
    queue: str | None = None


def when(is_found: object, setting: str | None = None, value: object = None) -> list[Found]:
    """Return what a rule found if its condition is true."""
    return [Found(setting, value)] if is_found else []


def faults(sentences: Iterable[str]) -> list[Found]:
    """Return a fault for each sentence, which begins with the name of a setting."""
    names = [(_SETTING.match(sentence), sentence) for sentence in sentences]
    return [Found(name and name[0], sentence) for name, sentence in names]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding. The letter in its id is its severity: E, W, I, or P (passed).

    Attributes:
        check: Takes facts and returns what it found.
    """

    id: str
    title: str
    why: str
    fix: str
    check: Callable[..., Iterable[Found]]

    @property
    def severity(self) -> Severity:
        """The severity, read from the id."""
        return _LETTERS[self.id.rpartition("-")[2][0]]

    def found(
        self, setting: str | None = None, value: object = None, queue: str | None = None
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


class RuleTable(list[Rule]):
    """Rules that take the same facts."""

    def rule(self, id_: str, title: str) -> Callable[[Callable[..., Iterable[Found]]], Rule]:
        """Add a rule. Its check's docstring says why it matters and, after "Fix:", what to do."""

        def add(check: Callable[..., Iterable[Found]]) -> Rule:
            why, _, fix = " ".join((check.__doc__ or _NO_TEXTS).split()).partition("Fix: ")
            made = Rule(id_, title, why.strip(), fix, check)
            self.append(made)
            return made

        return add

    def check(self, *facts: Any, queue: str | None = None) -> Iterator[Finding]:
        """Yield the findings about the facts.

        Args:
            queue: The queue that they are about, if any.
        """
        for rule in self:
            for found in rule.check(*facts):
                yield rule.found(found.setting, found.value, found.queue or queue)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity, then in the order of their ids and queues."""
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return sorted(findings, key=lambda f: (ranks[f.severity], f.id[-3:], _natural(f.queue or "")))


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts q2 before q10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


def as_lines(findings: Iterable[Finding]) -> list[str]:
    """Return findings for people. Those that differ only in their queue or value are grouped.

    The last line has the counts of the groups.
    """
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        setting = None if _says_all(finding) else finding.setting
        key = (finding.id, setting, finding.queue is None)
        groups.setdefault(key, []).append(finding)
    lines = [line for group in groups.values() for line in _lines_of(group)]
    counts = Counter(first.severity for first, *_ in groups.values())
    summary = [counted(counts[severity], *nouns) for severity, (_, *nouns) in _SHOWN.items()]
    return [*lines, *([""] if lines and lines[-1] else []), f"{', '.join(summary)}."]


def headline(group: Sequence[Finding]) -> str:
    """Return what was found, and where. If it ends with a colon, `_values_of` has the rest."""
    first = group[0]
    if _values_of(group):
        return f"{first.title}:"
    is_one = len({finding.value for finding in group}) == 1
    value = first.value if is_one else None
    where = [_queues(group, with_values=not is_one)] if first.queue is not None else []
    if first.setting is not None and not _says_all(first):
        where.append(first.setting if value is None else f"{first.setting}={value}")
        value = None
    subject = f"{', '.join(where)}: " if where else ""
    return f"{subject}{first.title}" + ("" if value is None else f": {value}")


def _lines_of(group: Sequence[Finding]) -> list[str]:
    first = group[0]
    texts = {"Why": first.why, "Fix": first.fix} if first.severity is not Severity.OK else {}
    label, *_ = _SHOWN[first.severity]
    return explanation(label, headline(group), _values_of(group), texts, first.id)


def _values_of(group: Sequence[Finding]) -> list[str]:
    """Return the values of a group without a queue, if they differ."""
    values = [f"{finding.value}" for finding in group]
    return values if group[0].queue is None and len(set(values)) > 1 else []


def _says_all(finding: Finding) -> bool:
    """Return whether the value is a sentence that begins with the setting."""
    return bool(finding.setting and finding.value and finding.value.startswith(finding.setting))


def _queues(group: Sequence[Finding], *, with_values: bool) -> str:
    names = [
        f"{each.queue} ({each.value})" if with_values and each.value else f"{each.queue}"
        for each in group
    ]
    is_one = len({each.queue for each in group}) == 1
    return f"queue {', '.join(names)}" if is_one else f"queues {', '.join(names)}"
