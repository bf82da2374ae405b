"""The facts about an app that need no call to SQS."""

from __future__ import annotations

import os
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, Task
from celery.signals import before_task_publish
from kombu.transport import SQS

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli.app import import_tasks, queue_names, read_app
from celery_sqs_heartbeat.cli.examination import examine_offline
from celery_sqs_heartbeat.cli.findings import Severity, headline
from tests.support.golden import golden, without_foreign
from tests.support.insides import hide_shared_tasks

LOCAL = "sqs://k:s@127.0.0.1:1"
POLLING = {"wait_time_seconds": 0, "polling_interval": 5, "visibility_timeout": 60}


@pytest.fixture(autouse=True)
def _no_tasks_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery shares the tasks of an app with all apps of the process."""
    hide_shared_tasks(monkeypatch)


class OwnTransport(SQS.Transport):
    """A user's transport."""


def app_with(broker: str = LOCAL, **conf: Any) -> Any:
    app = install(Celery("proj", broker=broker, set_as_current=False))
    app.conf.update(conf)
    return app


#: Settings, and the facts that follow from them.
FACTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"is_installed": True, "acks_late": False, "keeps_on_worker_lost": False}),
    ({}, {"prefetch_multiplier": 4, "eta_task_limit": None, "time_limit": None}),
    ({}, {"broker.is_sqs": True, "broker.wait_time": 10, "broker.polling_interval": 1}),
    ({}, {"broker.created_timeout": None, "broker.is_predefined": False, "pool": "prefork"}),
    ({"worker_concurrency": 3}, {"concurrency": 3, "leases": 12}),
    ({"worker_concurrency": 3, "worker_pool": "solo"}, {"concurrency": 1}),
    ({"worker_concurrency": "auto"}, {"concurrency": os.cpu_count()}),
    ({"worker_prefetch_multiplier": 0}, {"leases": 0}),
    ({}, {"acks_on_failure": "task_acks_on_failure_or_timeout"}),
    ({"task_acks_on_failure_or_timeout": False}, {"acks_on_failure": None}),
    ({"task_acks_on_failure": True}, {"acks_on_failure": "task_acks_on_failure"}),
    ({"task_acks_on_failure": False}, {"acks_on_failure": None}),
    ({"task_retry_on_worker_lost": True}, {"keeps_on_worker_lost": True}),
    ({"task_reject_on_worker_lost": True}, {"keeps_on_worker_lost": True}),
    (
        {"broker_transport_options": POLLING},
        {"broker.wait_time": 0, "broker.polling_interval": 5, "broker.created_timeout": 60},
    ),
]


def test_the_configuration_is_read() -> None:
    for conf, expected in FACTS:
        facts = read_app(app_with(**conf))
        assert {name: attrgetter(name)(facts) for name in expected} == expected
    facts = read_app(app_with(worker_concurrency=3), pool="threads", concurrency=7)
    assert (facts.pool, facts.concurrency) == ("threads", 7)
    assert not read_app(Celery("proj", broker=LOCAL, set_as_current=False)).is_installed


class _Retrying(Task):  # type: ignore[type-arg]
    max_retries = 7


@pytest.mark.parametrize(
    ("options", "retries"),
    [
        ({}, 0),
        ({"max_retries": 5}, 5),
        ({"max_retries": None}, None),
        ({"autoretry_for": (OSError,)}, 3),
        ({"autoretry_for": (OSError,), "max_retries": 8}, 8),
        ({"autoretry_for": (OSError,), "retry_kwargs": {"max_retries": 9}}, 9),
        ({"autoretry_for": (OSError,), "retry_kwargs": {"max_retries": None}}, None),
        ({"base": _Retrying}, 7),
    ],
)
def test_the_retries_of_a_task_are_read(options: dict[str, Any], retries: int | None) -> None:
    app = app_with(task_acks_late=True)
    app.task(name="celery.own", shared=False)(step)
    app.task(name="a", shared=False, acks_late=False, time_limit=5, **options)(step)
    (task,) = read_app(app).tasks
    assert (task.name, task.acks_late, task.time_limit, task.retries) == ("a", False, 5, retries)


class GroupingTask(Task):
    """The task class of an app that sets the group of each message in one place."""

    abstract = True

    def apply_async(self, *args: Any, **options: Any) -> Any:
        return super().apply_async(*args, MessageGroupId="A17", **options)


def step() -> None:
    """Do nothing. Used as a task."""


def group_of(name: str, *_: Any, **__: Any) -> dict[str, Any]:
    return {"MessageGroupId": name}


@pytest.mark.parametrize(
    ("routes", "groups", "may_name", "deduplicated"),
    [
        (None, set(), False, []),
        ({"a": "q.fifo", "b": {"queue": "q.fifo"}}, set(), False, []),
        ({"a.*": {"MessageGroupId": "A17"}, "b": {"MessageGroupId": 4}}, {"A17", "4"}, False, []),
        ([{"a": {"MessageGroupId": "A17"}}, {"b": {}}], {"A17"}, False, []),
        ([[(re.compile("a.*"), {"MessageDeduplicationId": "x"})]], set(), False, ["a.*"]),
        (group_of, set(), True, []),
        ([group_of, {"a": {"MessageGroupId": "A17"}}], {"A17"}, True, []),
        ("proj.routes.group_of", set(), True, []),
    ],
)
def test_groups_and_ids_in_routes_are_read(
    routes: Any, groups: set[str], may_name: bool, deduplicated: list[str]
) -> None:
    facts = read_app(app_with(task_routes=routes))
    assert (facts.groups, facts.may_name_groups) == (groups, may_name)
    assert facts.deduplicated_routes == deduplicated


def test_code_that_sends_may_name_a_group() -> None:
    app = app_with()
    before_task_publish.connect(group_of)
    try:
        assert read_app(app).may_name_groups
    finally:
        before_task_publish.disconnect(group_of)
    assert not read_app(app).may_name_groups
    app.task(name="proj.step", base=GroupingTask)(step)
    assert read_app(app).may_name_groups


#: The broker, whether it `is_secure`, and the address that is reached by plain HTTP.
PLAIN: list[tuple[str, bool | None, str | None]] = [
    ("sqs://", None, None),
    ("sqs://k:s@", False, "http://sqs.us-east-1.amazonaws.com"),
    ("sqs://k:s@sqs.internal:4566", None, "http://sqs.internal"),
    ("sqs://k:s@sqs.internal:4566", True, None),
    ("sqs://k:s@127.0.0.1:4566", None, None),
    ("sqs://k:s@localhost:4566", None, None),
    ("sqs://k:s@[::1]:4566", None, None),
]


def test_plain_http_to_another_machine_is_found() -> None:
    for broker, is_secure, found in PLAIN:
        app = app_with(broker, broker_transport_options={"is_secure": is_secure})
        assert read_app(app).broker.plain_http == found, broker


def options(**options: Any) -> dict[str, Any]:
    return {"broker_transport_options": options}


#: What no worker can use: one of the broker's URL, Celery's settings, or the heartbeat's.
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("memory://", {}),
    ("sqs://k:secret/s@", {}),
    ("sqs://key:secret@%5Bx:4566", {}),
    ("sqs://key:secret@a%E2%84%80b:4566", {}),
    ("sqss://key:secret@h:1", {}),
    ("http://key:secret@h:1", {}),
    (LOCAL, {"broker_transport": f"{__name__}:OwnTransport"}),
    (LOCAL, {"broker_transport_options": 5}),
    (LOCAL, options(region=5)),
    (LOCAL, options(predefined_queues={"work": {}})),
    (LOCAL, options(**{"client-config": {"read_timeout": 0}})),
    (LOCAL, options(**{"client-config": {"nope": 1}})),
    (LOCAL, options(wait_time_seconds=50)),
    (LOCAL, {"sqs_heartbeat_treshold": 5}),
    (LOCAL, {"sqs_heartbeat_on_lost": "kill"}),
    (LOCAL, {"sqs_heartbeat_queues": {"work": {"max_lease": "1"}}}),
    (LOCAL, {"sqs_heartbeat_queues": {5: {"on_lost": "warn"}}}),
    (LOCAL, {"sqs_heartbeat_session": "no.such:thing"}),
    (LOCAL, {"sqs_heartbeat_session": "os:sep"}),
    (LOCAL, {"sqs_heartbeat_session": "os:getcwd"}),
    (LOCAL, {"worker_prefetch_multiplier": "x"}),
    (LOCAL, {"worker_prefetch_multiplier": -1}),
    (LOCAL, {"worker_concurrency": -3}),
    (LOCAL, {"worker_eta_task_limit": "x"}),
    (LOCAL, {"task_time_limit": "x"}),
    (LOCAL, {"task_default_queue": 5}),
    (LOCAL, {"task_queues": {"a": 5}}),
    (LOCAL, {"task_queues": ["a"]}),
]


def test_what_is_wrong_is_the_only_error_and_names_its_setting_without_secrets() -> None:
    lines = []
    for broker, conf in WRONG:
        findings = examine_offline(app_with(broker, **conf))
        (error,) = [finding for finding in findings if finding.severity is Severity.ERROR]
        lines.append(f"{error.id} [{error.setting}] {headline([error])}")
        # There is no finding about a value that is not set.
        assert "SQSHB-W105" not in {finding.id for finding in findings}
    golden("wrong_settings.txt", without_foreign("\n".join([*lines, ""])))
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("solo", "None"),
        ("nope", "the pools are"),
        ("preforc", "did you mean prefork?"),
        ("no.such.module:Pool", "it can't be imported: ModuleNotFoundError"),
    ],
)
def test_an_unknown_pool_is_found(pool: str, said: str) -> None:
    assert said in str(read_app(app_with(), pool=pool).pool_fault)


@pytest.mark.parametrize(
    ("code", "said"),
    [("import nothing_like_it", "ModuleNotFoundError: "), ("raise SystemExit(3)", "SystemExit: 3")],
)
def test_tasks_that_can_not_be_imported_are_a_finding(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ending.py").write_text(code)
    app = app_with(imports=["ending"])
    findings = examine_offline(app, broken_tasks=import_tasks(app))
    assert said in {f.id: str(f.value) for f in findings}["SQSHB-E012"]


def test_the_queues_are_those_of_a_worker() -> None:
    app = app_with(task_queues={"a": {}, "b": {}})
    for chosen, names in {(): ["a", "b"], ("b",): ["b"], ("b", "new"): ["b", "new"]}.items():
        assert sorted(queue_names(app, chosen)) == names
