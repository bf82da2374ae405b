"""The command `tune`: what it prints, and when its check fails. What it measures is made up."""

from __future__ import annotations

import ast
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
from tests.support.golden import golden

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


def test_the_printed_settings_can_be_pasted_and_are_valid() -> None:
    (assignment,) = ast.parse(_tune(_app(), "fleet").stdout).body
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "app.conf.sqs_heartbeat_queues"
    queues = ast.literal_eval(assignment.value)
    assert list(read_settings({"sqs_heartbeat_queues": queues}.get).queues) == ["work"]
    # A run of tasks of about a minute says nothing of a later one of hours.
    assert queues == {"work": {"visibility_timeout": 30, "threshold": 10}}


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
        assert reason in " ".join(line.strip().removeprefix("# ") for line in lines)


GOOD = {"sqs_heartbeat_visibility_timeout": 90, "sqs_heartbeat_threshold": 25}
#: By Celery's name of the queue.
LONG = {"sqs_heartbeat_queues": {"work": {"visibility_timeout": 20_000}}}
#: The arguments and the app's settings.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("fleet", {}),
    # The queue's own timeout, half an hour, is worse.
    ("fleet --check", {}),
    ("fleet --check", GOOD),
    ("fleet --check", LONG),
    ("fleet --check --json", LONG),
    ("one --check", {}),
    ("one --check --json", {}),
    ("none", {}),
    # A check needs settings and tasks that a worker could use.
    ("one --check", {"worker_prefetch_multiplier": "x"}),
    ("one --check", {"imports": ["there_is_no_such_module"]}),
    ("one --check", {"sqs_heartbeat_threshold": -1}),
]


def test_recommendations_verdicts_and_errors() -> None:
    texts = []
    for arguments, conf in CALLS:
        result = _tune(_app(**conf), *arguments.split())
        assert not result.exception or isinstance(result.exception, SystemExit)
        texts.append(f"$ tune {arguments}  # {conf}\n{result.output}=> {result.exit_code}\n\n")
    # Three decimals are the same on every machine.
    golden("tune.txt", re.sub(r"(\.\d{3})\d+", r"\1", "".join(texts)))


def test_with_a_namespace_the_code_is_for_the_settings_module() -> None:
    (assignment,) = ast.parse(as_settings([], {}, rename=naming(Celery(namespace="CELERY")))).body
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "CELERY_SQS_HEARTBEAT_QUEUES"


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "find_spec", lambda name: None)
    result = _tune(_app(), "fleet")
    assert result.exit_code == 2
    assert "celery-sqs-heartbeat[pipeline]" in result.output
