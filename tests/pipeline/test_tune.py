"""The command `tune`: what it prints, and when its check fails. What it measures is made up."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner, Result

from celery_sqs_heartbeat.cli.tune import as_settings, tune
from celery_sqs_heartbeat.pipeline import faults, jobs, path_checks
from celery_sqs_heartbeat.pipeline.advice import Row
from celery_sqs_heartbeat.pipeline.survey import Measured, Survey
from celery_sqs_heartbeat.pipeline.tables.durations import Histogram, bin_of
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.worker.settings import naming

SECOND = 1_000_000
#: What was measured: tasks of a minute with a timeout of half an hour, a single one, and none.
FLEET = [(Histogram({bin_of(60 * SECOND): 1_500}), Counter({1800: 1_500}))]
ONE = [(Histogram({bin_of(SECOND): 1}), Counter({30: 1}))]
SOURCES: dict[str, list[tuple[Histogram, Counter[int]]]] = {"fleet": FLEET, "one": ONE, "none": []}


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(source: str, **_: Any) -> tuple[Survey, str]:
        queues = [
            Measured(queue="prod-work", task=None, held=held, timeouts=timeouts)
            for held, timeouts in SOURCES[source]
        ]
        return Survey(queues=queues, tasks={}), ""

    monkeypatch.setattr(jobs, "measure", measure)
    monkeypatch.setattr(path_checks, "check_source", lambda *_: True)


def _app(**conf: Any) -> Celery:
    app = Celery("proj", broker="sqs://")
    app.conf.update(broker_transport_options={"queue_name_prefix": "prod-"}, **conf)
    app.conf.update(task_default_queue="work")
    return app


def _tune(app: Celery, *arguments: str) -> Result:
    return CliRunner().invoke(tune, arguments, obj=SimpleNamespace(app=app, no_color=True))


def _comments(output: str) -> str:
    lines = (line.strip() for line in output.splitlines())
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))


def test_the_printed_settings_can_be_pasted_and_are_valid() -> None:
    result = _tune(_app(), "fleet")
    assert result.exit_code == 0, result.output
    (assignment,) = ast.parse(result.stdout).body
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "app.conf.sqs_heartbeat_queues"
    queues = ast.literal_eval(assignment.value)
    assert list(read_settings({"sqs_heartbeat_queues": queues}.get).queues) == ["work"]
    # A run of tasks of about a minute says nothing of a later one of hours.
    assert queues == {"work": {"visibility_timeout": 30, "threshold": 10}}
    said = _comments(result.stdout)
    assert said.startswith("An attempt is one receive of a message by a worker")
    assert (
        "Change visibility_timeout from 1,800 s to 30 s, and threshold from 600 s to 10 s. With "
        "the current settings, after a crash, a message waits for up to 1,800 s"
    ) in said
    assert "Confidence is high: 1,500 attempts have ended." in said


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    row: dict[str, Any] = dict.fromkeys(Row.__dataclass_fields__, 1)
    row |= {"task": None, "rank": 0}
    for before in range(1, 97):
        reason = f"{'x' * before} visible 8 s after a crash, 1,000 attempts, 2 min 15 s."
        settings = as_settings([Row(**{**row, "reason": reason})], {})
        lines = [line for line in settings.splitlines() if line.strip().startswith("#")]
        assert not [line for line in lines if re.search(r"\d$", line)]
        assert max(map(len, lines)) <= 96 + len(reason.split()[0])
        assert "\N{NO-BREAK SPACE}" not in settings
        assert reason in _comments(settings)


def test_thin_data_is_kept_apart_from_settings_that_are_good() -> None:
    result = _tune(_app(), "one", "--check")
    assert result.exit_code == 0, result.output
    assert '\'work\': {"visibility_timeout": 30, "threshold": 10},' in result.output
    said = _comments(result.stdout)
    assert "Keep visibility_timeout 30 s and threshold 10 s. There is too little data to " in said
    assert (
        "OK: queue prod-work: visibility_timeout=30, threshold=10; too little data to find faults"
        in said
    )
    output = json.loads(_tune(_app(), "one", "--check", "--json").stdout)
    (recommended,) = [row for row in output["recommendations"] if row["rank"] == 0]
    assert (recommended["confidence"], recommended["messages"]) == ("low", 1)
    assert [each["fault"] for each in output["checks"]] == [""]


@pytest.mark.parametrize(
    ("conf", "exit_code", "said"),
    [
        # The queue's own timeout, half an hour.
        ({}, 1, "WORSE: queue prod-work: "),
        # Good settings.
        (
            {"sqs_heartbeat_visibility_timeout": 90, "sqs_heartbeat_threshold": 25},
            0,
            "OK: queue prod-work: visibility_timeout=90",
        ),
        # The queue's settings, by Celery's name.
        (
            {"sqs_heartbeat_queues": {"work": {"visibility_timeout": 20_000}}},
            1,
            "WORSE: queue prod-work: visibility_timeout=20000",
        ),
    ],
)
def test_check_tells_when_the_apps_settings_are_worse(
    conf: dict[str, Any], exit_code: int, said: str
) -> None:
    result = _tune(_app(**conf), "fleet", "--check")
    assert result.exit_code == exit_code, result.output
    assert said in result.output


def test_with_a_namespace_the_code_is_for_the_settings_module() -> None:
    (assignment,) = ast.parse(as_settings([], {}, rename=naming(Celery(namespace="CELERY")))).body
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "CELERY_SQS_HEARTBEAT_QUEUES"


def test_nothing_measured_is_an_error_that_tells_what_to_do() -> None:
    result = _tune(_app(), "none")
    assert result.exit_code == 1
    assert "sqs_heartbeat_journal" in result.output


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "find_spec", lambda name: None)
    result = _tune(_app(), "fleet")
    assert result.exit_code == 2
    assert "celery-sqs-heartbeat[pipeline]" in result.output


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"worker_prefetch_multiplier": "x"}, "worker_prefetch_multiplier='x': must be a whole"),
        ({"imports": ["there_is_no_such_module"]}, "tasks can't be imported: ModuleNotFound"),
        ({"sqs_heartbeat_threshold": -1}, "sqs_heartbeat_threshold=-1"),
    ],
)
def test_a_check_needs_settings_and_tasks_that_a_worker_could_use(
    conf: dict[str, Any], said: str
) -> None:
    result = _tune(_app(**conf), "one", "--check")
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert said in result.output
