"""Puts the report together as one file of HTML."""

from __future__ import annotations

from importlib.resources import files

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.pipeline.report import (
    advice,
    costs,
    failures,
    flight,
    recovery,
    sections,
    spans,
)
from celery_sqs_heartbeat.pipeline.report.coverage import Coverage, covered
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.markup import Html, join

#: Each section's id, title and content.
_SECTIONS = (
    ("overview", "What happened", sections.overview),
    ("duplicates", "Duplicates", failures.duplicates),
    ("recoveries", "Recovery", recovery.recoveries),
    ("durations", "Durations", spans.durations),
    ("in-flight", "In flight", flight.in_flight),
    ("costs", "Calls and their price", costs.costs),
    ("recommendations", "Recommended settings", advice.recommendations),
    ("losses", "What the journal lacks", sections.losses),
)
#: Of tables, all days of them.
_UNKNOWN = Coverage(span=Span(), segments=None)


def render(findings: Findings, coverage: Coverage = _UNKNOWN) -> str:
    """Return the page. It loads nothing and runs no script, and says so to the browser."""
    contents = join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in _SECTIONS)
    sections = (_section(name, title, make(findings)) for name, title, make in _SECTIONS)
    body = join((covered(findings, coverage), *sections))
    page = _asset("report.html")
    for mark, inner in (("style", _asset("report.css")), ("contents", contents), ("body", body)):
        page = page.replace(f"<!--{mark}-->", inner, 1)
    return page


def _section(name: str, title: str, inner: Html) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{title}</h2>{inner}</section>\n'
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
