"""Groups findings of one kind that differ only in their queue or value, for people to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding


@dataclass(frozen=True, slots=True)
class Group:
    """Findings with the same id and setting, in their order. Most groups hold one."""

    findings: Sequence[Finding]

    @property
    def first(self) -> Finding:
        """The finding whose texts represent the group."""
        return self.findings[0]


def grouped(findings: Iterable[Finding]) -> list[Group]:
    """Return the findings in groups. A group's findings differ only in their queue and value."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        setting = None if _says_all(finding) else finding.setting
        key = (finding.id, setting, finding.queue is None)
        groups.setdefault(key, []).append(finding)
    return [Group(found) for found in groups.values()]


def headline(group: Group) -> str:
    """Return what was found, and where. If it ends with a colon, `values_of` has the rest."""
    first = group.first
    if values_of(group):
        return f"{first.title}:"
    values = {finding.value for finding in group.findings}
    value = first.value if len(values) == 1 else None
    where = [_queues(group, with_values=len(values) > 1)] if first.queue is not None else []
    if first.setting is not None and not _says_all(first):
        where.append(first.setting if value is None else f"{first.setting}={value}")
        value = None
    subject = f"{', '.join(where)}: " if where else ""
    return f"{subject}{first.title}" + ("" if value is None else f": {value}")


def values_of(group: Group) -> list[str]:
    """Return the values of a group without a queue, if they differ."""
    values = [f"{finding.value}" for finding in group.findings]
    return values if group.first.queue is None and len(set(values)) > 1 else []


def _says_all(finding: Finding) -> bool:
    """Return whether the value is a sentence that begins with the setting."""
    return bool(finding.setting and finding.value and finding.value.startswith(finding.setting))


def _queues(group: Group, *, with_values: bool) -> str:
    names = [
        f"{each.queue} ({each.value})" if with_values and each.value else f"{each.queue}"
        for each in group.findings
    ]
    is_one = len({each.queue for each in group.findings}) == 1
    return f"queue {', '.join(names)}" if is_one else f"queues {', '.join(names)}"
