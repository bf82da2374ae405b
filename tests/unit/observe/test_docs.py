"""The pages on metrics and on the status page, the dashboard and the alerts match the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.events import EventKind, KeeperHealth
from celery_sqs_heartbeat.observe.catalogue import METRICS, PREFIX
from celery_sqs_heartbeat.observe.metrics import Metrics
from celery_sqs_heartbeat.observe.otel import OtelObserver
from celery_sqs_heartbeat.observe.page_data import TROUBLES, PageData
from celery_sqs_heartbeat.observe.status import pages_of
from celery_sqs_heartbeat.observe.watched import PolledQueues, Watched
from tests.support.markdown import ROOT, blocks
from tests.support.observed import QUEUE, Observed
from tests.unit.observe.happening import event, one_of_each

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


FOLDER = ROOT / "celery_sqs_heartbeat" / "observe" / "grafana"
CASES = Path(__file__).parent / "alerts_test.yml"
_SELECTOR = re.compile(rf"\b({PREFIX}_\w+)(?:{{([^}}]*)}})?")
_LABEL = re.compile(r'(\w+)(?:=~|!~|!=|=)"')
_BY = re.compile(r"by \(([^)]*)\)")
#: Labels that Prometheus itself adds to every series.
_OF_PROMETHEUS = {"job", "instance"}


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return read


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]
    for rule in rules():
        yield rule["expr"]


@pytest.fixture(scope="module")
def shown() -> dict[str, set[str]]:
    """The labels of every series of the exporter, by the name of the series."""
    scene = Observed()
    scene.receive("a")
    scene.receive_in_order("A17", 1)
    for each in one_of_each():
        scene.metrics(each)
    # Only a running keeper has the time of its last tick.
    scene.keeper.start()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scene.metrics.exposition().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    scene.keeper.stop()
    return found


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_series_of_the_queries_is_exported(
    expression: str, shown: dict[str, set[str]]
) -> None:
    asked = _SELECTOR.findall(expression)
    assert asked
    known = set(_OF_PROMETHEUS)
    for name, selector in asked:
        assert name in shown, name
        assert set(_LABEL.findall(selector)) <= shown[name] | _OF_PROMETHEUS
        known |= shown[name]
    for labels in _BY.findall(expression):
        assert {label.strip() for label in labels.split(",")} <= known


def test_the_dashboard_shows_every_metric() -> None:
    asked = {name for expression in expressions() for name, _ in _SELECTOR.findall(expression)}
    for metric in METRICS:
        assert metric.series in asked or f"{metric.series}_bucket" in asked, metric.series


def test_bounds_of_histograms_in_rules_exist() -> None:
    bounds = {str(bound) for metric in METRICS for bound in metric.buckets}
    asked = {bound for each in expressions() for bound in re.findall(r'le="([^"]*)"', each)}
    assert asked
    assert asked <= bounds


def test_every_rule_is_named_rated_and_explained() -> None:
    for rule in rules():
        assert rule["alert"].startswith("SqsHeartbeat")
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_every_rule_has_a_case_in_which_it_fires() -> None:
    tests = yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]
    fired = {
        sample["labels"]
        for test in tests
        for each in test["promql_expr_test"]
        for sample in each["exp_samples"]
    }
    for rule in rules():
        assert f'{{alertname="{rule["alert"]}"}}' in fired


def test_every_rule_fires_when_it_should_and_not_before() -> None:
    promtool("check", "rules", FOLDER / "alerts.yml")
    promtool("test", "rules", CASES)


def test_prometheus_accepts_the_documented_scrape_configuration(tmp_path: Path) -> None:
    (text,) = blocks("docs/metrics.md", "yaml")
    config = yaml.safe_load(text)
    (scrape,) = config["scrape_configs"]
    assert config["rule_files"] == ["/etc/prometheus/sqs-heartbeat/alerts.yml"]
    # promtool requires both files to exist.
    (tmp_path / "token").write_text("0123456789abcdef\n")
    config["rule_files"] = [str(FOLDER / "alerts.yml")]
    scrape["authorization"]["credentials_file"] = str(tmp_path / "token")
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    promtool("check", "config", tmp_path / "prometheus.yml")


def promtool(*arguments: object) -> None:
    program = shutil.which("promtool")
    if program is None:
        assert not os.environ.get("CI"), "promtool is missing, and .ci/run should install it"
        pytest.skip("promtool is missing: install Debian's prometheus")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
