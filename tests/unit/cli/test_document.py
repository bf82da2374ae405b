"""The document tells of every finding there is, in the code's own words."""

from __future__ import annotations

from celery_sqs_heartbeat.cli.checks import KINDS
from celery_sqs_heartbeat.cli.group import sqs_heartbeat
from tests.support.markdown import ROOT


def test_the_table_of_findings_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `SQSHB-")]
    assert rows == [
        f"| `{kind.id}` | {kind.severity.value} | **{kind.title}**: {kind.why} | {kind.fix} |"
        for kind in KINDS
    ]


def test_every_option_is_in_the_document() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in ("doctor", "iam"):
        assert f"\n## {name}\n" in text
        for option in sqs_heartbeat.commands[name].params:
            assert any(f"`{flag}" in text for flag in option.opts), option.opts
