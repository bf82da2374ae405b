"""The doctor's rules and what they find, for people and for scripts."""

from __future__ import annotations

import enum
import re
import shutil
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from inspect import signature
from types import ModuleType
from typing import Any, NamedTuple

import click

from celery_sqs_heartbeat.common.escaping import counted, escaped

#: The widest line for sentences, on any terminal: longer lines are hard to read.
MAX_TEXT_WIDTH = 100
#: Where the text of a finding begins.
_INDENT = " " * 9


class Severity(enum.Enum):
    """How severe a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


#: The name of a setting, with keys in it, before its value or its fault.
_SETTING = re.compile(r"(?:task '.*?': )?\w+(?:\[[^\]]*\])*(?=[=:])")
_LETTERS = {"E": Severity.ERROR, "W": Severity.WARNING, "I": Severity.INFO, "P": Severity.OK}
#: A severity's label, its color, and what to call one or several such findings.
_SHOWN = {
    Severity.ERROR: ("ERROR", "red", "error", "errors"),
    Severity.WARNING: ("WARNING", "yellow", "warning", "warnings"),
    Severity.INFO: ("NOTE", "cyan", "note", "notes"),
    Severity.OK: ("OK", "green", "check passed", "checks passed"),
}
#: The texts of each rule without docstrings. Its id is the title.
_NO_TEXTS = "Python's option -OO removed the texts. Fix: Run the doctor without -OO."


@dataclass(frozen=True, slots=True)
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

    id: str
    title: str
    why: str
    fix: str
    queue: str | None = None
    setting: str | None = None
    value: str | None = None

    @property
    def severity(self) -> Severity:
        """The severity, by the letter in the id: E, W, I, or P (passed)."""
        return _LETTERS[self.id[-4]]

    def at(
        self, setting: str | None = None, value: object = None, queue: str | None = None
    ) -> Finding:
        """Return this finding about a place."""
        text = None if value is None else str(value)
        return replace(self, setting=setting, value=text, queue=queue)

    def naming(self, rename: Callable[[str], str]) -> Finding:
        """Return the finding with `rename` applied to each of its texts."""
        names = ("title", "why", "fix", "setting", "value")
        renamed: dict[str, Any] = {
            name: rename(text) for name in names if (text := getattr(self, name))
        }
        return replace(self, **renamed)

    def as_plain(self) -> dict[str, str | None]:
        """Return the finding as its JSON object."""
        return {"severity": self.severity.value, **asdict(self)}


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


class Rule(NamedTuple):
    """A kind of finding, and the function that finds it.

    Attributes:
        finding: What is found, without a place.
        facts: The names of the function's parameters.
    """

    finding: Finding
    facts: frozenset[str]
    check: Callable[..., Iterable[Found]]


def rules_in(module: ModuleType) -> Iterator[Rule]:
    """Yield the rules of a module: its functions with names such as `w205`, for SQSHB-W205.

    The docstring of a rule has the title, why it matters and, after "Fix:", what to do. Its
    parameters are the facts that it needs.
    """
    for name, check in vars(module).items():
        if re.fullmatch(r"[ewip]\d{3}", name):
            id_ = f"SQSHB-{name.upper()}"
            title, _, texts = (check.__doc__ or f"{id_}\n{_NO_TEXTS}").partition("\n")
            why, _, fix = " ".join(texts.split()).partition("Fix: ")
            finding = Finding(id_, title, why.strip(), fix)
            yield Rule(finding, frozenset(signature(check).parameters), check)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity, then in the order of their ids and queues."""
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return sorted(findings, key=lambda f: (ranks[f.severity], f.id[-3:], _natural(f.queue or "")))


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts q2 before q10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


def as_lines(findings: Iterable[Finding]) -> list[str]:
    """Return findings for people. Those that differ only in their queue or value are grouped.

    The last line has the counts of the groups. A terminal and a file get the same text:
    `click.echo` removes the colors if the output is not a terminal.
    """
    groups: dict[object, list[Finding]] = defaultdict(list)
    for finding in findings:
        setting = None if _says_all(finding) else finding.setting
        groups[finding.id, setting, finding.queue is None].append(finding)
    lines = [line for group in groups.values() for line in _lines_of(group)]
    counts = Counter(first.severity for first, *_ in groups.values())
    summary = [counted(counts[severity], *nouns) for severity, (_, _, *nouns) in _SHOWN.items()]
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
    label, color, *_ = _SHOWN[first.severity]
    head, *lines = _wrapped(headline(group))
    lines.insert(0, f"{click.style(f'{label:8}', fg=color, bold=True)} {head.lstrip()}")
    for value in _values_of(group):
        lines += _wrapped(value, "- ")
    if first.severity is Severity.OK:
        return lines
    for name, text in (("Why", first.why), ("Fix", first.fix)):
        lines += _wrapped(text, f"{name}: ") if text else []
    return [*lines, _INDENT + click.style(first.id, dim=True), ""]


def _wrapped(text: str, start: str = "") -> list[str]:
    """Return the wrapped lines of a text after its start. Words, such as settings, stay whole."""
    return textwrap.wrap(
        escaped(" ".join(text.split())),
        min(shutil.get_terminal_size().columns, MAX_TEXT_WIDTH),
        initial_indent=_INDENT + start,
        subsequent_indent=_INDENT + " " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


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
    return f"{'queue' if is_one else 'queues'} {', '.join(names)}"
