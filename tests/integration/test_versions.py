"""A worker checks at its start whether it can use the installed Celery and kombu."""

from __future__ import annotations

import logging
from collections import deque

import click
import pytest
from celery.exceptions import ImproperlyConfigured
from celery.worker.request import Request
from kombu.transport import SQS, virtual

from celery_sqs_heartbeat import SqsHeartbeatError
from celery_sqs_heartbeat.worker import versions
from celery_sqs_heartbeat.worker.versions import WorkerVersionsError, require_versions

INSTALLED = {"celery": "5.7.0", "kombu": "5.7.1", "billiard": "4.3.2"}


def install(monkeypatch: pytest.MonkeyPatch, **others: str) -> None:
    monkeypatch.setattr(versions, "running_versions", lambda: {**INSTALLED, **others})


def faults() -> list[str]:
    with pytest.raises(WorkerVersionsError) as caught:
        require_versions()
    return [line[4:] for line in str(caught.value).splitlines() if line.startswith("  - ")]


def test_nothing_is_missing_in_the_versions_installed_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    require_versions()
    assert caplog.text == ""


def test_a_missing_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(SQS.Channel, "_get_bulk")
    monkeypatch.delattr(Request, "on_accepted")
    assert faults() == [
        "celery.worker.request:Request.on_accepted is missing",
        "kombu.transport.SQS:Channel._get_bulk is missing",
    ]


def test_an_attribute_that_instances_no_longer_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(self: virtual.Channel, connection: object) -> None:
        self._tag_to_queue = {}
        self._active = deque()

    monkeypatch.setattr(virtual.Channel, "__init__", init)
    assert faults() == ["kombu.transport.SQS:Channel._active_queues is missing"]


@pytest.mark.parametrize("name", ["Channel", "QoS", "Transport"])
def test_a_missing_class_is_refused_by_one_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(SQS, name)
    assert faults() == [f"kombu.transport.SQS:{name} is missing"]


@pytest.mark.parametrize("old", [{"celery": "5.4.0"}, {"kombu": "5.4.2"}])
def test_older_versions_are_refused(monkeypatch: pytest.MonkeyPatch, old: dict[str, str]) -> None:
    install(monkeypatch, **old)
    assert faults() == ["Celery or kombu is older than 5.5"]


@pytest.mark.parametrize(("kombu", "is_needed"), [("5.6.3", False), ("5.7.0", True), ("6.0", True)])
def test_a_name_is_needed_only_since_the_version_that_introduced_it(
    monkeypatch: pytest.MonkeyPatch, kombu: str, is_needed: bool
) -> None:
    install(monkeypatch, kombu=kombu)
    monkeypatch.setattr(versions, "NAMES", {"kombu.asynchronous.hub:Hub": "_ready_lock"})
    monkeypatch.setattr("kombu.asynchronous.hub.Hub", type("Hub", (), {}))
    if is_needed:
        assert faults() == ["kombu.asynchronous.hub:Hub._ready_lock is missing"]
    else:
        require_versions()


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
    install(monkeypatch, celery=celery, kombu=kombu)
    monkeypatch.setattr(versions, "NAMES", {})
    with caplog.at_level(logging.WARNING):
        require_versions()
    assert len(caplog.records) == warnings
    if warnings:
        assert f"celery {celery}, kombu {kombu}, billiard 4.3.2" in caplog.text
        assert "5.5 to 5.7" in caplog.text


def test_the_error_says_what_to_do_and_needs_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(versions, "NAMES", {"kombu.no_such": "x", "kombu.transport": "gone"})
    with pytest.raises(SqsHeartbeatError) as caught:
        require_versions()
    error = caught.value
    assert isinstance(error, ImproperlyConfigured)
    assert isinstance(error, click.ClickException)
    text = error.format_message()
    assert text.startswith("sqs-heartbeat: the installed versions do not work together:")
    assert "\n  - kombu.no_such is missing\n  - kombu.transport.gone is missing\n" in text
    assert "Installed: celery 5.7.0, kombu 5.7.1, billiard 4.3.2." in text
    assert "Install Celery and kombu 5.5 to 5.7" in text
    assert "--no-heartbeat-sqs" in text
