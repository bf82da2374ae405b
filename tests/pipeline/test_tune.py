"""The command `tune`."""

from __future__ import annotations

import ast
import functools
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.cli.settings_code import as_settings
from celery_sqs_heartbeat.cli.tune import tune
from celery_sqs_heartbeat.pipeline import options
from celery_sqs_heartbeat.pipeline.engine import surveying
from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, DURATIONS, EVENTS, WORKERS
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
from celery_sqs_heartbeat.pipeline.tuning.row import Row
from celery_sqs_heartbeat.pipeline.tuning.survey import Survey
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.worker.settings import naming
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    message,
    workers_frame,
)


def _app(**conf: Any) -> Celery:
    app = Celery("proj", broker="sqs://")
    app.conf.update(broker_transport_options={"queue_name_prefix": "prod-"}, **conf)
    app.conf.update(task_default_queue="work")
    return app


def _tune(app: Celery, *arguments: str) -> Result:
    return CliRunner().invoke(tune, arguments, obj=SimpleNamespace(app=app, no_color=True))


def _attempts(number: int) -> list[dict[str, Any]]:
    chance = random.Random(2)
    rows = []
    for _ in range(number):
        run = round(chance.expovariate(1 / 60) * SECOND)
        rows.append(
            {
                "queue": "prod-work",
                "received": DAY,
                "started": DAY,
                "finished": DAY + run,
                "wait_us": 0,
                "run_us": run,
                "last_event": DAY + run,
                "ended_as": "deleted",
                "vt": 1800,
            }
        )
    return rows


def _comments(output: str) -> str:
    lines = (line.strip() for line in output.splitlines())
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))


@pytest.fixture(scope="module")
def survey_once() -> Iterator[None]:
    """Measure each source once: the tests are about the results."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surveying, "survey_source", functools.cache(surveying.survey_source))
        yield


@pytest.fixture(scope="module")
def warehouse(
    survey_once: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> str:
    path = str(tmp_path_factory.mktemp("warehouse"))
    attempts = attempts_frame(spark, *_attempts(1_500))
    found = Warehouse(spark, path)
    extended = message("lease-extended", 1, queue="prod-work", call=1, batch=1, lat_us=50_000)
    found.write(DURATIONS, durations_of(attempts))
    found.write(ATTEMPTS, attempts)
    found.write(EVENTS, events_frame(spark, *[extended] * 500))
    found.write(WORKERS, workers_frame(spark, {"last_seen": DAY + SECOND, "concurrency": 4}))
    return path


@pytest.fixture
def journal(tmp_path: Path) -> str:
    base = {"v": 1, "wid": "w1", "queue": "prod-work", "msg": "m1", "dlv": "d1", "rc": 1}
    lines = [
        {"ev": "message-received", "vt": 30, "cause": "new"},
        {"ev": "task-started"},
        {"ev": "message-deleted", "call": 1, "batch": 1, "lat_us": 9000, "ended_us": 9000},
    ]
    folder = tmp_path / "dt=2026-03-14" / "worker=w1"
    folder.mkdir(parents=True)
    with open(folder / "seg-1.jsonl.open", "w") as file:
        for seq, line in enumerate(lines, 1):
            times = {"ts": DAY + seq * SECOND, "mono": seq * SECOND, "seq": seq}
            print(json.dumps({**base, **times, "task": "proj.add", **line}), file=file)
    return str(tmp_path)


def test_the_printed_settings_can_be_pasted_and_are_valid(warehouse: str) -> None:
    result = _tune(_app(), warehouse)
    assert result.exit_code == 0, result.output
    (assignment,) = ast.parse(result.stdout).body
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "app.conf.sqs_heartbeat_queues"
    queues = ast.literal_eval(assignment.value)
    settings = read_settings({"sqs_heartbeat_queues": queues}.get)
    assert list(settings.queues) == ["work"]
    # A run of tasks of about a minute says nothing of a later one of hours.
    assert "max_lease" not in queues["work"]
    said = _comments(result.stdout)
    assert said.startswith("An attempt is one receive of a message by a worker")
    terms = queues["work"]
    assert (
        f"Change visibility_timeout from 1,800 s to {terms['visibility_timeout']} s, and threshold "
        f"from 600 s to {terms['threshold']} s. With the current settings, calls, waits "
    ) in said
    assert "Confidence is medium: 1,500 attempts have ended, 10,000 are needed for high." in said


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


def test_settings_that_check_does_not_find_worse_stay_unchanged(
    journal: str, warehouse: str
) -> None:
    for source, is_kept in ((journal, True), (warehouse, False)):
        result = _tune(_app(), source, "--check")
        assert ("# OK: " in result.output) is is_kept
        assert ("# Keep visibility_timeout " in result.output) is is_kept
        assert (result.exit_code == 0) is is_kept


def test_thin_data_is_kept_apart_from_settings_that_are_good(journal: str) -> None:
    result = _tune(_app(), journal, "--check")
    assert '\'work\': {"visibility_timeout": 30, "threshold": 10},' in result.output
    said = _comments(result.stdout)
    assert "Keep visibility_timeout 30 s and threshold 10 s. There is too little data to " in said
    assert "The data cannot show how many attempts would lose their lease." in said
    assert (
        "OK: queue prod-work: visibility_timeout=30, threshold=10; too little data to find faults"
        in said
    )


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
            "WORSE: queue prod-work: ",
        ),
    ],
)
def test_check_tells_when_the_apps_settings_are_worse(
    warehouse: str, conf: dict[str, Any], exit_code: int, said: str
) -> None:
    result = _tune(_app(**conf), warehouse, "--check")
    assert result.exit_code == exit_code, result.output
    assert said in result.output


def test_a_journal_does_as_well_and_thin_data_is_no_fault(journal: str) -> None:
    result = _tune(_app(), journal, "--check", "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    (recommended,) = [row for row in output["recommendations"] if row["rank"] == 0]
    assert (recommended["confidence"], recommended["messages"]) == ("low", 1)
    assert [each["fault"] for each in output["checks"]] == [""]


def test_with_a_namespace_the_code_is_for_the_settings_module() -> None:
    (assignment,) = ast.parse(as_settings([], {}, rename=naming(Celery(namespace="CELERY")))).body
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "CELERY_SQS_HEARTBEAT_QUEUES"


def test_nothing_measured_is_an_error_that_tells_what_to_do(
    journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Survey(queues=[], tasks={}, settings={})
    monkeypatch.setattr(surveying, "survey_source", lambda *_, **__: (nothing, ""))
    result = _tune(_app(), journal)
    assert result.exit_code == 1
    assert "sqs_heartbeat_journal" in result.output


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    result = _tune(_app(), ".")
    assert result.exit_code == 2
    assert "celery-sqs-heartbeat[pipeline]" in result.output


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"worker_prefetch_multiplier": "x"}, "worker_prefetch_multiplier='x': must be a whole"),
        ({"imports": ["there_is_no_such_module"]}, "tasks can't be imported: ModuleNotFound"),
    ],
)
def test_a_check_needs_options_and_tasks_that_a_worker_could_use(
    journal: str, conf: dict[str, Any], said: str
) -> None:
    result = _tune(_app(**conf), journal, "--check")
    assert result.exit_code == 2
    assert said in result.output


def test_faulty_settings_are_reported_before_anything_is_read(journal: str) -> None:
    result = _tune(_app(sqs_heartbeat_threshold=-1), journal)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert "sqs_heartbeat_threshold=-1" in result.output
