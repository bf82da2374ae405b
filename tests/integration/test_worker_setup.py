"""A worker's start: it reads its settings, checks the versions, and takes over the transport.

A worker that could not keep leases does not start, and one line says why.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import click
import kombu.transport
import pytest
from celery import Celery
from celery.exceptions import ImproperlyConfigured
from celery.worker.request import Request
from kombu import Connection
from kombu.transport import SQS, virtual

from celery_sqs_heartbeat import ConfigurationError, SqsHeartbeatError, install
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from celery_sqs_heartbeat.transport import Transport, register_transport
from celery_sqs_heartbeat.transport.binding import bind, bound
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.worker import versions
from celery_sqs_heartbeat.worker.requests import LeasedRequest, use_leased_requests
from celery_sqs_heartbeat.worker.settings import read_app_settings, warn_of_unknown_queues
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep
from celery_sqs_heartbeat.worker.versions import WorkerVersionsError, require_versions
from tests.support.insides import forget_transports


@pytest.fixture
def restored_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kombu.transport, "TRANSPORT_ALIASES", {**kombu.transport.TRANSPORT_ALIASES})
    forget_transports(monkeypatch)


def test_install_is_harmless_when_called_twice() -> None:
    app = Celery("proj")
    assert install(install(app)) is app
    assert app.steps["worker"] == {SqsHeartbeatStep}
    assert len(app.user_options["worker"]) == 1


class Django:
    """The settings of a project that uses a namespace."""

    CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT = 60
    CELERY_SQS_HEARTBEAT_QUEUES = {"slow": {"max_lease": 600}}  # noqa: RUF012
    CELERY_TASK_ACKS_LATE = True


@pytest.mark.parametrize("namespace", [None, "CELERY", "celery"])
def test_settings_are_read_with_and_without_a_namespace(namespace: str | None) -> None:
    source: Any = {name: value for name, value in vars(Django).items() if name[0] == "C"}
    if namespace != "CELERY":
        start = len("CELERY_") if namespace is None else 0
        source = {name[start:].lower(): value for name, value in source.items()}
    app = Celery("proj")
    app.config_from_object(source, namespace=namespace)
    settings = read_app_settings(app, 8)
    assert settings.for_queue("slow").visibility_timeout == 60
    assert settings.for_queue("slow").max_lease == 600


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("SQS_HEARTBEAT_THRESHOLD", None),
        ("sqs_heartbeat_treshold", None),
        ("CELERY_SQS_HEARTBEAT_TRESHOLD", "CELERY"),
    ],
)
def test_a_setting_that_no_one_would_read_is_an_error(name: str, namespace: str | None) -> None:
    app = Celery("proj")
    app.config_from_object({name: 5}, namespace=namespace)
    with pytest.raises(ConfigurationError, match=r"(?i)did you mean (celery_)?sqs_heartbeat_thres"):
        read_app_settings(app, 8)


def _task() -> None: ...


def test_a_tasks_own_settings_are_read_and_a_misspelt_option_is_an_error() -> None:
    app = Celery("proj")
    for name, own in (("slow", {"visibility_timeout": 600}), ("quick", False)):
        app.task(name=name, shared=False, sqs_heartbeat=own)(_task)
    app.finalize()
    settings = read_app_settings(app, 8)
    assert settings.for_task("q", "slow").visibility_timeout == 600
    assert settings.for_task("q", "quick").extend is False
    app.task(name="typo", shared=False, sqs_hartbeat=False)(_task)
    with pytest.raises(ConfigurationError, match=r"'typo': sqs_hartbeat: .*did you mean sqs_hea"):
        read_app_settings(app, 8)


@pytest.mark.usefixtures("restored_aliases")
def test_the_transport_survives_a_failover_to_another_broker_url() -> None:
    assert type(Connection("sqs://k:s@first").transport) is SQS.Transport
    register_transport()
    connection = Connection(["sqs://k:s@first", "sqs://k:s@second"])
    assert type(connection.transport) is Transport
    connection.maybe_switch_next()
    assert connection.hostname == "second"
    assert type(connection.transport) is Transport


class OwnRequest(Request):
    pass


def test_every_task_has_leased_requests_even_with_its_own_request_class_or_added_later() -> None:
    app = Celery("proj")
    app.task(name="own", shared=False, Request=OwnRequest)(_task)
    app.finalize()
    use_leased_requests(app)
    use_leased_requests(app)
    app.task(name="late", shared=False)(_task)
    own = app.tasks["own"].Request
    assert issubclass(own, OwnRequest)
    assert own.__mro__.count(LeasedRequest) == 1
    assert len(own.__mro__) == len({*OwnRequest.__mro__, *LeasedRequest.__mro__}) + 1
    assert issubclass(app.tasks["late"].Request, LeasedRequest)


@pytest.mark.parametrize(
    ("name", "warned"),
    [
        ("celery", None),
        ("listed", None),
        ("celrey", "nor on SQS; did you mean 'celery'?"),
        ("unlike", "nor on SQS"),
    ],
)
def test_settings_of_a_queue_that_neither_the_app_nor_sqs_has_cause_a_warning(
    caplog: pytest.LogCaptureFixture, name: str, warned: str | None
) -> None:
    app = Celery("proj", broker="sqs://", set_as_current=False)
    warn_of_unknown_queues(app, [name], {"listed"}.__contains__)
    assert [record.message.partition("-Q, ")[2] for record in caplog.records] == (
        [] if warned is None else [warned]
    )


def test_a_queue_is_listed_by_its_name_at_sqs() -> None:
    with SimulatedServer() as server:
        server.client().create_queue(QueueName="shop-mail")
        options = {"region": "us-east-1", "is_secure": False, "queue_name_prefix": "shop-"}
        with Connection(
            f"sqs://k:s@{server.url.removeprefix('http://')}",
            transport=Transport,
            transport_options=options,
        ) as connection:
            channel = KombuChannel(connection.transport)
            listed = channel.is_listed
            assert [listed(name) for name in ("mail", "mial")] == [True, False]
            names = (f"q{number}" for number in range(1_000 - len(channel._queue_cache)))
            channel._queue_cache.update(dict.fromkeys(names, ""))
            # SQS lists no more in one answer, so the queue may be missing from it.
            assert listed("mial")


def test_a_forked_child_has_no_heartbeat_and_no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat: Any = object()
    bind(heartbeat)
    assert bound() is heartbeat
    monkeypatch.setattr("celery_sqs_heartbeat.transport.binding.os.getpid", lambda: -1)
    assert bound() is None
    monkeypatch.undo()
    bind(None)


INSTALLED = {"celery": "5.7.0", "kombu": "5.7.1", "billiard": "4.3.2"}


def faults() -> list[str]:
    with pytest.raises(WorkerVersionsError) as caught:
        require_versions()
    error = caught.value
    # `celery` shows it without a traceback, and so do programs that embed a worker.
    for kind in (SqsHeartbeatError, ImproperlyConfigured, click.ClickException):
        assert isinstance(error, kind)
    first, *lines, last = error.format_message().splitlines()
    assert first == "sqs-heartbeat: the installed versions do not work together:"
    end = " ".join([*lines, last])
    ways = ("Install Celery and kombu 5.5 to 5.7", "--no-heartbeat-sqs")
    assert [each for each in (versions.installed(), *ways) if each not in end] == []
    return [line[4:] for line in lines if line.startswith("  - ")]


def test_no_private_name_is_missing_in_the_versions_installed_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    require_versions()
    assert caplog.text == ""


def test_a_name_that_is_gone_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(self: virtual.Channel, connection: object) -> None:
        self._tag_to_queue = {}
        self._active = deque()

    monkeypatch.setattr(virtual.Channel, "__init__", init)
    monkeypatch.delattr(SQS.Channel, "_get_bulk")
    monkeypatch.delattr(Request, "on_accepted")
    monkeypatch.delattr(SQS, "QoS")
    assert faults() == [
        "celery.worker.request:Request.on_accepted is missing",
        "kombu.transport.SQS:Channel._active_queues is missing",
        "kombu.transport.SQS:Channel._get_bulk is missing",
        "kombu.transport.SQS:QoS is missing",
    ]


@pytest.mark.parametrize(
    ("running", "fault"),
    [
        ({}, None),
        ({"celery": "5.5.3", "kombu": "5.5.4"}, None),
        ({"celery": "5.4.0"}, "Celery or kombu is older than 5.5"),
        ({"kombu": "5.4.2"}, "Celery or kombu is older than 5.5"),
        ({"celery": "5.8.0b1"}, "untested"),
        ({"kombu": "6.0"}, "untested"),
    ],
)
def test_older_versions_are_refused_and_untested_ones_cause_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    running: dict[str, str],
    fault: str | None,
) -> None:
    monkeypatch.setattr(versions, "running_versions", lambda: {**INSTALLED, **running})
    monkeypatch.setattr(versions, "NAMES", {})
    if fault in (None, "untested"):
        require_versions()
    else:
        assert faults() == [fault]
    assert len(caplog.records) == (fault == "untested")
    if fault == "untested":
        assert (
            ", ".join(f"{each} {v}" for each, v in {**INSTALLED, **running}.items()) in caplog.text
        )
        assert "5.5 to 5.7" in caplog.text


@pytest.mark.parametrize(("kombu", "is_needed"), [("5.6.3", False), ("5.7.0", True), ("6.0", True)])
def test_a_name_is_needed_only_since_the_version_that_introduced_it(
    monkeypatch: pytest.MonkeyPatch, kombu: str, *, is_needed: bool
) -> None:
    monkeypatch.setattr(versions, "running_versions", lambda: {**INSTALLED, "kombu": kombu})
    monkeypatch.setattr(versions, "NAMES", {"kombu.asynchronous.hub:Hub": "_ready_lock"})
    monkeypatch.setattr("kombu.asynchronous.hub.Hub", type("Hub", (), {}))
    if is_needed:
        assert faults() == ["kombu.asynchronous.hub:Hub._ready_lock is missing"]
    else:
        require_versions()
