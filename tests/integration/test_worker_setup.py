"""How the worker's step reads an app's configuration and takes over its transport."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kombu.transport
import pytest
from celery import Celery
from celery.worker.request import Request
from kombu import Connection
from kombu.transport import SQS

from celery_sqs_heartbeat import ConfigurationError, install
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from celery_sqs_heartbeat.transport import Transport, register_transport
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.worker.requests import LeasedRequest, use_leased_requests
from celery_sqs_heartbeat.worker.settings import read_app_settings, warn_of_unknown_queues
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep
from tests.support.insides import forget_transports
from tests.support.waiting import PATIENCE
from tests.support.workers import ROOT


@pytest.fixture
def restored_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kombu.transport, "TRANSPORT_ALIASES", {**kombu.transport.TRANSPORT_ALIASES})
    forget_transports(monkeypatch)


def test_install_is_harmless_when_called_twice() -> None:
    app = Celery("proj")
    assert install(install(app)) is app
    assert app.steps["worker"] == {SqsHeartbeatStep}
    assert len(app.user_options["worker"]) == 1


#: Prints whether `Task.retry` is as before: after `install`, while each worker runs, and when it
#: has ended. Another package wraps the function of the second worker.
EMBEDDED = """
import functools, logging, threading
from celery import Celery, Task
from celery.worker import state
from celery_sqs_heartbeat import install

trace = logging.getLogger("celery.app.trace")
before = vars(Task)["retry"], list(trace.filters)
app = install(Celery("embedded", broker=BROKER))
app.conf.broker_transport_options = {"is_secure": False, "wait_time_seconds": 1}
print(before == (vars(Task)["retry"], trace.filters))

class Worker(app.WorkController):
    def on_consumer_ready(self, consumer):
        ready.set()

for wrap in (False, True):
    before, ready = vars(Task)["retry"], threading.Event()
    worker = Worker(pool="solo", heartbeat_sqs=True, without_gossip=True, without_mingle=True)
    thread = threading.Thread(target=worker.start)
    thread.start()
    ready.wait()
    print(vars(Task)["retry"] is before)
    if wrap:
        Task.retry = before = functools.wraps(Task.retry)(functools.partial(Task.retry))
    state.should_stop = 0
    thread.join()
    state.should_stop = None
    print(vars(Task)["retry"] is before)
"""


@pytest.mark.thorough
def test_only_a_worker_whose_heartbeat_is_on_replaces_retry_and_undoes_it_at_its_end() -> None:
    with SimulatedServer() as server:
        server.client().create_queue(QueueName="celery")
        script = f"BROKER = {server.broker_url!r}\n{EMBEDDED}"
        ended = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert ended.stdout.split() == ["True", "False", "True", "False", "True"], ended


#: Runs a task in a worker, and prints which of the package's modules the process has loaded then.
LOADING = """
import sys, threading
from celery import Celery
from celery.worker import state
from celery_sqs_heartbeat import install

has_run = threading.Event()
app = install(Celery("loading", broker=BROKER))
app.set_default()
app.conf.update(
    broker_transport_options={"is_secure": False, "wait_time_seconds": 1},
    sqs_heartbeat_journal=JOURNAL, sqs_heartbeat_status="127.0.0.1:0", sqs_heartbeat_otel=OTEL,
)

@app.task
def run():
    has_run.set()

run.delay()
options = {"heartbeat_sqs": True, "without_gossip": True, "without_mingle": True}
thread = threading.Thread(target=app.WorkController(pool="solo", **options).start)
thread.start()
has_run.wait(PATIENCE)
state.should_stop = 0
thread.join()
assert has_run.is_set()
print(*(name for name in sys.modules if name.startswith("celery_sqs_heartbeat.")))
"""


def test_a_worker_loads_neither_the_keeper_nor_the_journal(tmp_path: Path) -> None:
    has_otel = find_spec("opentelemetry") is not None
    with SimulatedServer() as server:
        server.client().create_queue(QueueName="celery")
        values = f"BROKER, PATIENCE = {server.broker_url!r}, {PATIENCE}\n"
        values += f"JOURNAL, OTEL = {str(tmp_path)!r}, {has_otel}"
        ended = subprocess.run(
            [sys.executable, "-c", f"{values}{LOADING}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    loaded = {tuple(name.split(".")[1:]) for name in ended.stdout.split()}
    assert {("link", "client"), ("worker", "heartbeat")} <= loaded, ended.stderr
    assert (("observe", "otel") in loaded) is has_otel
    assert {name for name in loaded if name[0] in {"keeper", "journal"}} == set()
    # The keeper's process was there.
    assert list(tmp_path.rglob("*.jsonl*"))


def test_settings_are_read_in_lower_case() -> None:
    app = Celery("proj")
    app.conf.update(sqs_heartbeat_visibility_timeout=60, sqs_heartbeat_threshold=20)
    assert read_app_settings(app, 8).for_queue("q").visibility_timeout == 60


@pytest.mark.parametrize("namespace", ["CELERY", "celery"])
def test_settings_are_read_in_a_namespace_as_in_django_projects(namespace: str) -> None:
    class Django:
        CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT = 60
        CELERY_SQS_HEARTBEAT_QUEUES = {"slow": {"max_lease": 600}}  # noqa: RUF012
        CELERY_TASK_ACKS_LATE = True

    source: Any = Django
    if namespace.islower():
        source = {name.lower(): getattr(Django, name) for name in vars(Django) if name[0] == "C"}
    app = Celery("proj")
    app.config_from_object(source, namespace=namespace)
    settings = read_app_settings(app, 8)
    assert settings.for_queue("slow").visibility_timeout == 60
    assert settings.for_queue("slow").max_lease == 600


@pytest.mark.parametrize("name", ["SQS_HEARTBEAT_THRESHOLD", "sqs_heartbeat_treshold"])
def test_a_setting_that_no_one_would_read_is_an_error(name: str) -> None:
    app = Celery("proj")
    app.config_from_object({name: 5})
    with pytest.raises(ConfigurationError, match="did you mean sqs_heartbeat_threshold"):
        read_app_settings(app, 8)


def test_a_tasks_own_settings_are_read() -> None:
    app = Celery("proj")

    @app.task(name="slow", sqs_heartbeat={"visibility_timeout": 600})
    def slow() -> None: ...

    @app.task(name="quick", sqs_heartbeat=False)
    def quick() -> None: ...

    app.finalize()
    settings = read_app_settings(app, 8)
    assert settings.for_task("q", "slow").visibility_timeout == 600
    assert settings.for_task("q", "quick").extend is False


@pytest.mark.usefixtures("restored_aliases")
def test_the_transport_survives_a_failover_to_another_broker_url() -> None:
    assert type(Connection("sqs://k:s@first").transport) is SQS.Transport
    register_transport()
    connection = Connection(["sqs://k:s@first", "sqs://k:s@second"])
    assert type(connection.transport) is Transport
    connection.maybe_switch_next()
    assert connection.hostname == "second"
    assert type(connection.transport) is Transport


def test_every_task_has_leased_requests_even_with_its_own_request_class_or_added_later() -> None:

    class OwnRequest(Request):
        pass

    app = Celery("proj")

    @app.task(name="own", Request=OwnRequest)
    def own() -> None: ...

    app.finalize()
    use_leased_requests(app)
    use_leased_requests(app)

    @app.task(name="late")
    def late() -> None: ...

    assert issubclass(app.tasks["own"].Request, (LeasedRequest, OwnRequest))
    assert issubclass(app.tasks["own"].Request, OwnRequest)
    assert app.tasks["own"].Request.__mro__.count(LeasedRequest) == 1
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
            channel._queue_cache.update({f"q{number}": "" for number in range(1_000)})
            # SQS lists no more in one answer, so the queue may be missing from it.
            assert listed("mial")
