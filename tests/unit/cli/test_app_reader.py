"""The facts about an app that need no call to SQS."""

from __future__ import annotations

import re
from typing import Any

import pytest
from celery import Celery, Task
from celery.signals import before_task_publish
from kombu.transport import SQS

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli.app.app_contents import queue_names
from celery_sqs_heartbeat.cli.app.app_facts import AppFacts
from celery_sqs_heartbeat.cli.app.app_reader import read_app
from celery_sqs_heartbeat.cli.doctor.examination import check_offline
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


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (
            {},
            {
                "is_sqs": True,
                "is_installed": True,
                "acks_late": False,
                "acks_on_failure": "task_acks_on_failure_or_timeout",
                "keeps_on_worker_lost": False,
                "prefetch_multiplier": 4,
                "eta_task_limit": None,
                "time_limit": None,
                "wait_time": 10,
                "polling_interval": 1,
                "created_timeout": None,
                "is_predefined": False,
                "pool": "prefork",
            },
        ),
        ({"worker_concurrency": 3}, {"concurrency": 3, "leases": 12}),
        ({"worker_concurrency": 3, "worker_pool": "solo"}, {"concurrency": 1}),
        ({"worker_prefetch_multiplier": 0}, {"leases": 0}),
        ({"task_acks_on_failure_or_timeout": False}, {"acks_on_failure": None}),
        ({"task_acks_on_failure": True}, {"acks_on_failure": "task_acks_on_failure"}),
        ({"task_acks_on_failure": False}, {"acks_on_failure": None}),
        ({"task_retry_on_worker_lost": True}, {"keeps_on_worker_lost": True}),
        ({"task_reject_on_worker_lost": True}, {"keeps_on_worker_lost": True}),
        (
            {"broker_transport_options": POLLING},
            {"wait_time": 0, "polling_interval": 5, "created_timeout": 60},
        ),
        ({"sqs_heartbeat_interval": -1}, {"faults_count": 1}),
    ],
)
def test_the_configuration_is_read(conf: dict[str, Any], expected: dict[str, Any]) -> None:
    facts = read_app(app_with(**conf))
    for name, value in expected.items():
        told = len(facts.faults) if name == "faults_count" else getattr(facts, name)
        assert told == value, name


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
    app = app_with()

    @app.task(name="a", shared=False, **options)
    def work() -> None: ...

    assert [task.retries for task in read_app(app).tasks] == [retries]


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
        (None, set(), False, ()),
        ({"a": "q.fifo", "b": {"queue": "q.fifo"}}, set(), False, ()),
        ({"a.*": {"MessageGroupId": "A17"}, "b": {"MessageGroupId": 4}}, {"A17", "4"}, False, ()),
        ([{"a": {"MessageGroupId": "A17"}}, {"b": {}}], {"A17"}, False, ()),
        ([[(re.compile("a.*"), {"MessageDeduplicationId": "x"})]], set(), False, ("a.*",)),
        (group_of, set(), True, ()),
        ([group_of, {"a": {"MessageGroupId": "A17"}}], {"A17"}, True, ()),
        ("proj.routes.group_of", set(), True, ()),
    ],
)
def test_groups_and_ids_in_routes_are_read(
    routes: Any, groups: set[str], may_name: bool, deduplicated: tuple[str, ...]
) -> None:
    sending = read_app(app_with(task_routes=routes)).sending
    assert (sending.groups, sending.may_name_groups) == (groups, may_name)
    assert sending.deduplicated_routes == deduplicated


def test_code_that_sends_may_name_a_group() -> None:
    def name_a_group(properties: Any = None, **_: Any) -> None:
        properties["MessageGroupId"] = "A17"

    app = app_with()
    before_task_publish.connect(name_a_group)
    try:
        assert read_app(app).sending.may_name_groups
    finally:
        before_task_publish.disconnect(name_a_group)
    assert not read_app(app).sending.may_name_groups
    app.task(name="proj.step", base=GroupingTask)(step)
    assert read_app(app).sending.may_name_groups


@pytest.mark.parametrize(
    ("session", "fault"),
    [
        ("no.such:thing", "can't be imported"),
        ("os:sep", "is not a function: name one that returns a boto3.Session"),
        ("os:getcwd", "returned str: return a boto3.Session"),
    ],
)
def test_a_session_function_is_tried_like_a_worker_does(session: str, fault: str) -> None:
    (found,) = read_app(app_with(sqs_heartbeat_session=session)).faults
    assert f"sqs_heartbeat_session={session!r}: " in found
    assert fault in found


@pytest.mark.parametrize(
    ("broker", "options", "found"),
    [
        ("sqs://", {}, None),
        ("sqs://k:s@", {"is_secure": False}, "http://sqs.us-east-1.amazonaws.com"),
        ("sqs://k:s@sqs.internal:4566", {}, "http://sqs.internal"),
        ("sqs://k:s@sqs.internal:4566", {"is_secure": True}, None),
        ("sqs://k:s@127.0.0.1:4566", {}, None),
        ("sqs://k:s@localhost:4566", {}, None),
        ("sqs://k:s@[::1]:4566", {}, None),
    ],
)
def test_plain_http_to_another_machine_is_found(
    broker: str, options: dict[str, Any], found: str | None
) -> None:
    facts = read_app(app_with(broker, broker_transport_options=options))
    assert facts.plain_http == found


@pytest.mark.parametrize("host", ["%5Bx", "a%E2%84%80b"])
def test_an_impossible_host_is_a_fault(host: str) -> None:
    options = {"wait_time_seconds": 0}
    facts = read_app(app_with(f"sqs://key:secret@{host}:4566", broker_transport_options=options))
    assert facts.broken_broker is not None
    assert "secret" not in facts.broken_broker
    # The rest is still read.
    assert facts.wait_time == 0


@pytest.mark.parametrize("scheme", ["sqss", "http"])
def test_an_unknown_broker_is_named(scheme: str) -> None:
    fault = read_app(app_with(f"{scheme}://key:secret@127.0.0.1:1")).broken_broker
    assert fault is not None
    assert f"No such transport: {scheme}" in fault
    assert fault.endswith("begin it with sqs://")
    assert "secret" not in fault


def test_the_command_line_overrides_the_configuration() -> None:
    facts = read_app(app_with(worker_concurrency=3), pool="threads", concurrency=7)
    assert (facts.pool, facts.concurrency) == ("threads", 7)


def test_tasks_are_read_except_celerys_own() -> None:
    app = app_with(task_acks_late=True)

    @app.task(name="own", acks_late=False, time_limit=5)
    def own() -> None: ...

    @app.task(name="celery.own")
    def of_celery() -> None: ...

    (task,) = read_app(app).tasks
    assert (task.name, task.acks_late, task.time_limit) == ("own", False, 5)


@pytest.mark.parametrize(
    ("broker", "conf", "id_"),
    [
        ("memory://", {}, "SQSHB-E002"),
        ("sqs://k:s/s@", {}, "SQSHB-E005"),
        (LOCAL, {"broker_transport_options": {"predefined_queues": {"q": {}}}}, "SQSHB-E401"),
        (LOCAL, {"broker_transport_options": 5}, "SQSHB-E005"),
        (LOCAL, {"broker_transport_options": {"client-config": {"read_timeout": 0}}}, "SQSHB-E401"),
        (LOCAL, {"broker_transport": f"{__name__}:OwnTransport"}, "SQSHB-E004"),
    ],
)
def test_an_unusable_broker_is_found(broker: str, conf: dict[str, Any], id_: str) -> None:
    facts = read_app(app_with(broker, **conf))
    assert id_ in [finding.id for finding in check_offline(facts)]


def test_an_app_without_the_heartbeat_is_recognized() -> None:
    app = Celery("proj", broker=LOCAL, set_as_current=False)
    assert read_app(app).is_installed is False
    assert read_app(install(app)).is_installed is True


@pytest.mark.parametrize(
    ("chosen", "names"), [([], ["a", "b"]), (["b"], ["b"]), (["b", "new"], ["b", "new"])]
)
def test_the_queues_are_those_of_a_worker(chosen: list[str], names: list[str]) -> None:
    app = app_with(task_queues={"a": {}, "b": {}})
    assert sorted(queue_names(app, chosen)) == names


def test_the_defaults_of_facts_are_sound() -> None:
    """So the tables of the tests name only the facts that they change."""
    assert [f.id for f in check_offline(AppFacts())] == ["SQSHB-P008"]
