"""The dashboard and the alerts query only series that the exporter has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from celery_sqs_heartbeat.observe.catalogue import METRICS, PREFIX
from tests.support.markdown import ROOT, blocks
from tests.support.observed import Observed
from tests.unit.observe.happening import one_of_each

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


def test_panels_have_distinct_ids_titles_and_places() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    for panel in panels:
        assert panel["description"].endswith(".")
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


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
