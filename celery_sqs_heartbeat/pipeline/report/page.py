"""Renders the report as one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.pipeline.report.figures import text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.sections.call_costs import call_costs
from celery_sqs_heartbeat.pipeline.report.sections.coverage import Coverage, covered
from celery_sqs_heartbeat.pipeline.report.sections.duplicate_pairs import duplicate_pairs
from celery_sqs_heartbeat.pipeline.report.sections.idle_receives import idle_receives
from celery_sqs_heartbeat.pipeline.report.sections.in_flight_curves import in_flight_curves
from celery_sqs_heartbeat.pipeline.report.sections.missing_lines import missing_lines
from celery_sqs_heartbeat.pipeline.report.sections.overview import overview
from celery_sqs_heartbeat.pipeline.report.sections.recovery_times import recovery_times
from celery_sqs_heartbeat.pipeline.report.sections.run_times import run_times
from celery_sqs_heartbeat.pipeline.report.sections.settings_advice import settings_advice
from celery_sqs_heartbeat.pipeline.report.sections.stopped_groups import stopped_groups

#: Each section's anchor, title and content. Its template has the name of the content's function.
_SECTIONS: tuple[tuple[str, str, Callable[[Findings], object]], ...] = (
    ("overview", "What happened", overview),
    ("duplicates", "Duplicates", duplicate_pairs),
    ("idle-receives", "Receives without an execution", idle_receives),
    ("recoveries", "Recovery", recovery_times),
    ("groups", "Stopped groups", stopped_groups),
    ("durations", "Durations", run_times),
    ("in-flight", "In flight", in_flight_curves),
    ("costs", "Calls and their price", call_costs),
    ("recommendations", "Recommended settings", settings_advice),
    ("losses", "Missing from the journal", missing_lines),
)
#: Of tables, all days of them.
_UNKNOWN = Coverage(span=Span(), segments=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of the page.

    Attributes:
        content: For the template; a sentence if there is nothing to show.
    """

    anchor: str
    title: str
    template: str
    content: object


def render(findings: Findings, coverage: Coverage = _UNKNOWN) -> str:
    """Return the page. It loads nothing and runs no script, and tells the browser so."""
    sections = [
        Section(
            anchor=anchor,
            title=title,
            template=f"{make.__name__}.html.j2",
            content=make(findings),
        )
        for anchor, title, make in _SECTIONS
    ]
    page = _environment().get_template("page.html.j2")
    return page.render(sections=sections, coverage=covered(findings, coverage))


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("celery_sqs_heartbeat.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: object) -> str:
    """Return the text for a value, before it is escaped as HTML.

    Control characters are not allowed in HTML, lone surrogates can't be encoded, and characters
    that change the text's direction could make a name look like another one.
    """
    # The result of a macro is escaped already.
    return value if isinstance(value, Markup) else escaped(text(value))
