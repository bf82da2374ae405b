"""docs/metrics.md and docs/status-page.md match the code."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.observe.catalogue import METRICS
from celery_sqs_heartbeat.observe.otel import OtelObserver
from celery_sqs_heartbeat.observe.status.http import RefusedError, Request
from celery_sqs_heartbeat.observe.status.pages import Pages
from celery_sqs_heartbeat.observe.status.payloads import (
    events_payload,
    health_payload,
    leases_payload,
)
from tests.support.markdown import ROOT, blocks
from tests.support.observed import Observed
from tests.unit.observe.happening import event

PAGE = "docs/status-page.md"


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def test_the_table_of_metrics_matches_the_code() -> None:
    table = "\n".join(
        f"| `{metric.series}` | {metric.kind} | "
        f"{', '.join(f'`{label}`' for label in metric.labels) or '-'} | {metric.help} |"
        for metric in METRICS
    )
    assert f"|---|---|---|---|\n{table}\n\n" in text_of("docs/metrics.md"), f"\n{table}"


def test_the_snippets_about_metrics_run(monkeypatch: pytest.MonkeyPatch) -> None:
    registering, tracing = blocks("docs/metrics.md", "python")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    names: dict[str, Any] = {}
    exec(registering, names)
    assert isinstance(names["registry"], CollectorRegistry)
    assert names["registry"].get_sample_value("sqs_heartbeat_keeper_alive") == 0
    exec(tracing, names)
    assert isinstance(names["observer"], OtelObserver)


@pytest.fixture
def payloads() -> dict[str, Any]:
    scene = Observed()
    scene.receive("a")
    scene.recorder(event(EventKind.LEASE_EXPIRED))
    scene.recorder(event(EventKind.MESSAGE_RELEASED, group="A17", stops_group=True))
    return {
        **health_payload(scene.keeper, scene.polled),
        **leases_payload(scene.keeper, scene.recorder, "", scene.polled),
        **events_payload(scene.keeper, scene.recorder),
    }


def fields(payload: Any) -> set[str]:
    if isinstance(payload, dict):
        return set(payload).union(*map(fields, payload.values()))
    if isinstance(payload, list):
        return set().union(*map(fields, payload))
    return set()


def test_every_field_is_documented(payloads: dict[str, Any]) -> None:
    documented = set(re.findall(r"`(\w+)`", text_of(PAGE).partition("## Fields")[2]))
    assert fields(payloads) <= documented


def test_every_path_is_documented() -> None:
    scene = Observed()
    with pytest.raises(RefusedError) as refused:
        Pages(scene.keeper, scene.recorder, scene.metrics, "").answer(
            Request(path="/nothing", headers={})
        )
    known = set(re.findall(r"/\w*", refused.value.response.body.decode()))
    assert known == set(re.findall(r"^\| `(/\w*)` \|", text_of(PAGE), re.MULTILINE))


def test_pictures_exist_and_the_probe_is_yaml() -> None:
    pictures = re.findall(r"!\[.*\]\((.*)\)", text_of(PAGE))
    assert pictures
    for picture in pictures:
        assert (ROOT / "docs" / picture).stat().st_size > 10_000
    (probe,) = blocks(PAGE, "yaml")
    assert yaml.safe_load(probe)["livenessProbe"]["httpGet"]["path"] == "/healthz"
