"""A table lists every name of Celery and kombu that we need. Each worker checks it at its start."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from celery.exceptions import ImproperlyConfigured

from celery_sqs_heartbeat import SqsHeartbeatError
from celery_sqs_heartbeat.worker import required_versions as at_start
from celery_sqs_heartbeat.worker.compat import versions
from celery_sqs_heartbeat.worker.compat.check import missing
from celery_sqs_heartbeat.worker.compat.needs import Need
from celery_sqs_heartbeat.worker.compat.private_names import NAMES
from tests.integration.uses import PACKAGE, modules

HERE = "tests.integration.test_compat"
#: Names that the scan finds, and that are not Celery's or kombu's.
NOT_THEIRS = {
    "clear": "urllib3's",
    "MAXAGE_CONN": "pycurl's; checked before it is used",
    "PREREQFUNCTION": "pycurl's; checked before it is used",
    "__init__": "every class has it",
    "__init_subclass__": "every class has it",
    "__func__": "Python's",
    "__self__": "Python's",
    "__wrapped__": "Python's",
    "connection_pool_kw": "urllib3's",
    "get_pool": "of kombu 5.5; checked before it is used",
    "memfd_create": "Python's",
    "pop": "a dict's",
    "seconds": "of gevent's and eventlet's timeouts; checked before it is used",
    "timeout": "of a pool that has one; checked before it is used",
    "sqs_heartbeat": "an option that users set on their tasks",
    "transport": "a module, or the attribute of a Connection",
    "SQS": "a module",
    "_state": "a module",
}


class Theirs:
    """Stands for a class of another package."""

    taken = 1

    def __init__(self) -> None:
        self.stored = 1

    def call(self, queue: str, count: int = 1) -> None:
        def nested() -> None:
            self.late = count

        nested()

    def changed(self, queue: str, count: int, more: int = 0) -> None: ...

    def same(self, queue: str, count: int = 1) -> None: ...

    @property
    def shown(self) -> int:
        return 1


class Ours(Theirs):
    def changed(self, queue: str, count: int) -> None: ...  # type: ignore[override]

    def same(self, *args: object, **kwargs: object) -> None: ...

    shown = 2  # type: ignore[assignment]


def need(name: str, owner: str = f"{HERE}:Theirs", **more: object) -> Need:
    return Need(owner=owner, name=name, why="a test", **more)  # type: ignore[arg-type]


def overridden(name: str) -> Need:
    return need(name, by=f"{HERE}:Ours")


def names_used() -> Iterator[tuple[str, str]]:
    for module in modules():
        for name in (*module.imported(), *module.of_modules(), *module.of_objects()):
            yield name, module.name
        for name in module.of_self():
            yield name, module.name


@pytest.mark.oldest
def test_nothing_is_missing_in_the_versions_installed_here() -> None:
    assert missing() == ()


def test_every_name_that_a_worker_uses_of_celery_and_kombu_is_in_the_table() -> None:
    known = {each.name for each in NAMES} | set(NOT_THEIRS)
    assert sorted({use for use in names_used() if use[0] not in known}) == []


def test_every_name_in_the_table_is_used() -> None:
    source = "\n".join(
        path.read_text() for path in PACKAGE.rglob("*.py") if path.parent.name != "compat"
    )
    assert [str(each) for each in NAMES if each.name not in source] == []


def test_every_override_in_the_table_is_one_of_ours() -> None:
    for each in NAMES:
        if each.by is not None:
            module, _, kind = each.by.partition(":")
            ours = getattr(__import__(module, fromlist=[kind]), kind)
            defined = [base for base in ours.__mro__ if each.name in vars(base)]
            assert defined, each
            assert defined[0].__module__.startswith("celery_sqs_heartbeat"), each


@pytest.mark.parametrize(
    ("need", "fault"),
    [
        (need("taken"), None),
        (need("stored"), None),
        (need("late"), None),
        (need("shown"), None),
        (need("gone"), f"{HERE}:Theirs.gone is missing: a test"),
        (need("gone", owner=HERE), f"{HERE}:gone is missing: a test"),
        (need("x", owner="kombu.no_such"), "kombu.no_such is missing: a test"),
        (need("x", owner=f"{HERE}:NoSuch"), f"{HERE}:NoSuch is missing: a test"),
        (need("call", call="queue"), None),
        (need("call", call="queue, count="), None),
        (need("call", call=""), f"{HERE}:Theirs.call no longer accepts (): a test"),
        (
            need("call", call="queue, count, wait="),
            f"{HERE}:Theirs.call no longer accepts (queue, count, wait=): a test",
        ),
        (overridden("same"), None),
        (overridden("shown"), None),
        (
            overridden("changed"),
            f"{HERE}:Theirs.changed now takes (self, queue, count, more): a test",
        ),
        (overridden("gone"), f"{HERE}:Theirs.gone is missing: a test"),
    ],
)
def test_a_name_that_is_missing_or_has_changed_is_reported(need: Need, fault: str | None) -> None:
    assert missing([need]) == (() if fault is None else (fault,))


def test_a_missing_class_is_one_fault_however_many_of_its_names_we_need() -> None:
    gone = f"{HERE}:NoSuch"
    faults = missing([need("NoSuch", owner=HERE), need("x", owner=gone), need("y", owner=gone)])
    assert faults == (f"{gone} is missing: a test",)


@pytest.mark.parametrize("name", ["Channel", "QoS", "Transport"])
def test_a_missing_base_class_is_reported(name: str) -> None:
    script = f"""
from kombu.transport import SQS
del SQS.{name}
from celery_sqs_heartbeat.worker.compat.check import missing
print("\\n".join(missing()))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"kombu.transport.SQS:{name}" in run.stdout


@pytest.mark.parametrize(
    ("installed", "faults"), [("5.6.3", 0), ("5.7.0", 1), ("6.0rc1", 1), ("unknown", 1)]
)
def test_a_name_is_needed_only_since_the_version_that_introduced_it(
    monkeypatch: pytest.MonkeyPatch, installed: str, faults: int
) -> None:
    monkeypatch.setattr(versions, "version_of", lambda package: installed)
    assert len(missing([need("gone", owner="kombu", since=(5, 7))])) == faults


@pytest.mark.parametrize(
    ("celery", "kombu", "warnings"),
    [("5.7.0", "5.7.1", 0), ("5.5.3", "5.5.4", 0), ("5.8.0b1", "5.7.0", 1), ("5.7.0", "6.0", 1)],
)
def test_untested_versions_cause_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    celery: str,
    kombu: str,
    warnings: int,
) -> None:
    installed = {"celery": celery, "kombu": kombu, "billiard": "4.3.2"}
    monkeypatch.setattr(at_start, "version_of", installed.__getitem__)
    with caplog.at_level(logging.WARNING):
        at_start.require_versions()
    assert len(caplog.records) == warnings
    if warnings:
        assert f"celery {celery}, kombu {kombu}, billiard 4.3.2" in caplog.text
        assert "5.5 to 5.7" in caplog.text


def test_all_missing_names_are_one_error_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = missing([need("gone"), need("call", call="")])
    monkeypatch.setattr(at_start, "missing", lambda: faults)
    with pytest.raises(SqsHeartbeatError) as caught:
        at_start.require_versions()
    error = caught.value
    assert isinstance(error, ImproperlyConfigured)
    assert isinstance(error, click.ClickException)
    text = error.format_message()
    assert text.startswith("sqs-heartbeat: 2 names that the heartbeat needs")
    assert all(fault in text for fault in faults)
    assert "Install Celery and kombu 5.5 to 5.7" in text
    assert "--no-heartbeat-sqs" in text
