"""docs/metrics.md and docs/status-page.md match the code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client import CollectorRegistry

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.events import EventKind, KeeperHealth
from celery_sqs_heartbeat.observe.catalogue import METRICS
from celery_sqs_heartbeat.observe.metrics import Metrics
from celery_sqs_heartbeat.observe.otel import OtelObserver
from celery_sqs_heartbeat.observe.page_data import TROUBLES, PageData
from celery_sqs_heartbeat.observe.status import pages_of
from celery_sqs_heartbeat.observe.watched import PolledQueues, Watched
from tests.support.markdown import ROOT, blocks
from tests.support.observed import QUEUE, Observed
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
    for observer in (scene.metrics, scene.data):
        observer(event(EventKind.LEASE_EXPIRED))
        observer(event(EventKind.MESSAGE_RELEASED, group="A17", stops_group=True))
    return {**scene.data.health(), **scene.data.leases(), **scene.data.events()}


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
    known = pages_of(scene.data, scene.metrics)
    # Not the files that the page consists of.
    assert {path for path in known if "." not in path} == set(
        re.findall(r"^\| `(/\w*)` \|", text_of(PAGE), re.MULTILINE)
    )


def test_pictures_exist_and_the_probe_is_yaml() -> None:
    pictures = re.findall(r"!\[.*\]\((.*)\)", text_of(PAGE))
    assert pictures
    for picture in pictures:
        assert (ROOT / "docs" / picture).stat().st_size > 10_000
    (probe,) = blocks(PAGE, "yaml")
    paths = {kind: each["httpGet"]["path"] for kind, each in yaml.safe_load(probe).items()}
    assert paths == {"livenessProbe": "/livez", "readinessProbe": "/readyz"}


ALIVE = KeeperHealth(alive=True)


@pytest.mark.parametrize(
    ("health", "fails_for", "status", "is_live", "is_ready"),
    [
        (ALIVE, 0, "ok", True, True),
        (KeeperHealth(alive=False, late=True, connected=False), 90, "dead", False, False),
        (replace(ALIVE, late=True, stalled=True), 0, "late", False, False),
        (replace(ALIVE, stalled=True), 90, "stalled", False, False),
        (replace(ALIVE, connected=False), 90, "unconnected", True, False),
        (ALIVE, 90, "deaf", True, False),
        (ALIVE, 30, "ok", True, True),
    ],
)
def test_a_restart_is_for_stuck_workers_only_as_documented(
    health: KeeperHealth, fails_for: float, status: str, is_live: bool, is_ready: bool
) -> None:
    polled = PolledQueues()
    polled.asked("orders", QUEUE)
    for _ in range(2 if fails_for else 0):
        polled.unanswered("orders", clock.now() - fails_for)
    metrics = Metrics()
    metrics.watch(cast("Watched", SimpleNamespace(health=health)), polled=polled.view)
    pages = pages_of(PageData(metrics), metrics)
    for path, is_well in (("/livez", is_live), ("/readyz", is_ready), ("/healthz", is_ready)):
        answer = pages[path]()
        assert (answer.status == 200) is is_well
        assert json.loads(answer.body)["status"] == status
    documented = dict(re.findall(r"^\| `(\w+)` \| (200|503) \|", text_of(PAGE), re.MULTILINE))
    assert set(documented) == set(TROUBLES)
    assert documented.get(status, "200") == ("200" if is_live else "503")
