"""`celery sqs-heartbeat status`, against status pages of real keepers and of other servers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import click
import pytest
from celery import Celery
from click.testing import Result

from celery_sqs_heartbeat.cli import pages
from celery_sqs_heartbeat.cli.pages import Page
from celery_sqs_heartbeat.cli.status import lines_of, readable
from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from tests.support.golden import golden
from tests.support.observed import TOKEN, Observed, observed
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.cli.conftest import run as run_command

SUMS = {"in_flight": 2_000, "running": 3, "waiting": 1_997, "pending_deletes": 1}
TASK = {**SUMS, "queue": "orders", "task": "shop.pay", "oldest": 1234.4, "least_left": 9.6}
#: What the command reads of a page.
PAGE: dict[str, Any] = {
    **SUMS,
    "worker": "celery@one",
    "leases": [],
    "health": {"status": "ok"},
    "pending_releases": 0,
    "not_well": 0,
    "groups": 0,
    "behind": 0,
    "oldest": 1234.4,
    "least_left": 9.6,
    "tasks": [{**TASK, "not_well": 0, "behind": 0}],
    "tasks_left_out": 0,
    "stopped_groups": [],
    "stopped_groups_left_out": 0,
}
#: Marks what a page lacks.
GONE = object()
STOPPED = {"queue": "orders.fifo", "group": "B4", "task": None, "cause": "failed"}


@pytest.fixture
def scene() -> Iterator[Observed]:
    with observed(name="celery@one") as scene:
        scene.receive("a", task="shop.pay")
        scene.receive("b", task="shop.pay")
        yield scene


def run(line: str, *, env: dict[str, str] | None = None, **settings: Any) -> Result:
    """Run the command, for an app with these settings of the heartbeat."""
    app = Celery(set_as_current=False)
    app.conf.update({f"sqs_heartbeat_{name}": value for name, value in settings.items()})
    return run_command(app, f"status {line}", env=env or {})


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address at which nothing can answer: its port is taken, but no one listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def answer(**page: Any) -> Page:
    """Return an answer that differs from `PAGE`."""
    payload = {key: value for key, value in {**PAGE, **page}.items() if value is not GONE}
    return Page(url="http://h:1", payload=payload)


def test_workers_tasks_groups_and_notes_are_shown() -> None:
    of_fifo = {
        "worker": "",
        "health": {"status": "late"},
        "groups": 1_500,
        "behind": 12,
        "oldest": None,
        "tasks": [
            {**TASK, "not_well": 2, "behind": 12},
            {**TASK, "task": None, "not_well": 0, "behind": 0},
        ],
        "tasks_left_out": 7,
        "stopped_groups": [{**STOPPED, "receive_count": 3, "ago": 5.2, "visible_in": -1.0}],
        "stopped_groups_left_out": 1_000,
    }
    silent = Page(url="u", origin="the app's", fault="is away")
    shown = {
        "without groups": [answer()],
        "with groups": [answer(), answer(**of_fifo), silent],
        "nothing": [silent],
    }
    text = "".join(
        f"# {name}\n" + "\n".join([*map(click.unstyle, lines_of(answers)), ""])
        for name, answers in shown.items()
    )
    golden("status.txt", text)


@pytest.mark.parametrize(
    ("page", "status"),
    [({}, 0), ({"not_well": 1}, 1), ({"not_well": None}, 1), ({"health": {"status": "deaf"}}, 1)],
)
def test_a_worker_that_is_not_well_sets_the_exit_status(
    page: dict[str, Any], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ask_all", lambda targets, token: [answer(), answer(**page)])
    assert run("--url http://h:1").exit_code == status


def test_a_page_that_can_t_be_shown_is_of_another_version() -> None:
    read = [name for name in PAGE if name not in ("leases", "worker", "least_left")]
    others = [answer(**{name: GONE}) for name in read]
    for name in ("in_flight", "oldest", "health", "groups", "tasks_left_out"):
        others += [answer(**{name: value, "stopped_groups": [{}]}) for value in ("x", [], {})]
    said = "its worker runs another version of celery-sqs-heartbeat"
    assert [each for each in map(readable, others) if each.payload or said not in each.fault] == []


def test_scripts_get_the_contents_of_the_pages(scene: Observed, nowhere: str) -> None:
    result = run(f"--url {scene.url}/ --url {nowhere} --json")
    assert result.exit_code == 1
    page, missing = json.loads(result.stdout)
    assert (page["url"], page["in_flight"], len(page["leases"])) == (f"{scene.url}/", 2, 2)
    assert missing["url"] == nowhere
    assert "does not answer" in missing["error"]
    assert "does not answer" in run(f"--url {scene.url} --url {nowhere}").stdout


def test_the_pages_of_real_keepers_can_be_shown(scene: Observed) -> None:
    failed = scene.receive_in_order("B4", 1)
    scene.keeper.release(failed, 600, cause="failed")
    assert scene.keeper.flush(PATIENCE)
    # It is recorded after the keeper's flush.
    wait_until(lambda: scene.data.events()["happenings"])
    result = run(f"--url {scene.url}")
    assert result.exit_code == 0
    for words in ("celery@one  ok", "orders  shop.pay", "orders.fifo  B4"):
        assert words in result.stdout
    scene.keeper.stop()
    result = run(f"--url {scene.url}")
    assert result.exit_code == 1
    assert "celery@one: its keeper is dead: leases expire" in result.stdout


def test_a_lost_lease_sets_the_exit_status(scene: Observed) -> None:
    scene.sqs.answer = lambda call: [Outcome.LOST] * len(call.entries)
    scene.receive("lost", task="shop.mail", terms=LeaseTerms(visibility_timeout=30, threshold=29.9))
    wait_until(lambda: run(f"--url {scene.url}").exit_code == 1)


@pytest.mark.parametrize("how", ["", "--json"])
def test_if_nothing_answers_one_line_names_the_address(how: str, nowhere: str) -> None:
    result = run(f"--url {nowhere} {how}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {nowhere}: does not answer (Connection refused)")
    assert "sqs_heartbeat_status" in line


def test_the_token_is_that_of_the_option_the_environment_or_the_app() -> None:
    with observed(token=TOKEN, name="celery@one") as scene:
        own = {"status": scene.url.removeprefix("http://"), "status_token": TOKEN}
        other = {"status": "h:1", "status_token": f"other-{TOKEN}"}
        url = f"--url {scene.url}"
        assert run("", **own).exit_code == 0
        assert run(url, **own).exit_code == 0
        refused = run(url, **other)
        assert refused.exit_code == 2
        assert "needs its token" in refused.stderr
        assert run(f"{url} --token {TOKEN}", **other).exit_code == 0
        assert run(url, env={"SQS_HEARTBEAT_STATUS_TOKEN": TOKEN}, **other).exit_code == 0


#: The setting, the address that is asked, and where it is from.
ORIGINS: list[tuple[str | None, str, str]] = [
    (None, "http://127.0.0.1:9808", "the default: the app sets no sqs_heartbeat_status"),
    ("127.0.0.1:1", "http://127.0.0.1:1", "the app's sqs_heartbeat_status"),
    ("0.0.0.0:1", "http://127.0.0.1:1", "the app's sqs_heartbeat_status"),
    ("[::]:1", "http://[::1]:1", "the app's sqs_heartbeat_status"),
    ("localhost:1", "http://localhost:1", "the app's sqs_heartbeat_status"),
]


def test_the_error_names_the_address_and_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    away = "is away"
    monkeypatch.setattr(pages, "ask_all", lambda targets, _: [replace(targets[0], fault=away)])
    for address, asked, origin in ORIGINS:
        result = run("", status=address)
        assert (result.exit_code, result.stderr) == (2, f"Error: {asked} ({origin}): {away}\n")


#: The app's settings, None if they can't be read, and the options.
REFUSED: list[tuple[dict[str, Any] | None, str]] = [
    ({"status": "127.0.0.1:0"}, ""),
    ({"status": "9808"}, ""),
    ({"status": 9808}, ""),
    ({"status_token": "short-secret"}, ""),
    ({}, "--token="),
    ({}, "--token=short-secret"),
    ({}, "--token=" + "ä" * 20),
    ({}, "--url=127.0.0.1:9808"),
    ({}, "--url=file:///etc/passwd"),
    ({}, "--url=http://"),
    ({}, "--url=http://[x"),
    ({}, "--url=http://h:1/?token=short-secret"),
    ({}, "--url=http://h:1/#token=short-secret"),
    ({}, "--url=http://u:short-secret@h:1"),
    ({}, "--watch --json"),
    (None, ""),
    (None, "--url=http://h:1"),
]


def test_what_can_not_be_used_is_one_line_without_secrets() -> None:
    lines = []
    for settings, line in REFUSED:
        if settings is None:
            app = Celery(set_as_current=False)
            app.config_from_object("there_is_no_such_module")
            result = run_command(app, f"status {line}")
        else:
            result = run(line, **settings)
        assert (result.exit_code, result.stdout) == (2, "")
        lines.append(result.stderr.splitlines()[-1])
    golden("status_refused.txt", "\n".join([*lines, ""]))
    assert "short-secret" not in "".join(lines)


class _Other(BaseHTTPRequestHandler):
    """A server that is not a worker's. Each path begins with the status or with the answer."""

    def do_GET(self) -> None:
        name = self.path.split("/")[1]
        self.send_response(int(name) if name.isdecimal() else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(ANSWERS.get(name, "").encode())

    def log_message(self, *_: object) -> None: ...


ANSWERS = {"html": "<html>", "list": "[]", "deep": "[" * 100_000, "number": '{"leases": 3}'}


def test_another_server_is_not_taken_for_a_worker() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        names = (*ANSWERS, "302", "401", "403", "500", "503")
        answers = pages.ask_all([Page(url=f"{url}/{name}") for name in names], TOKEN)
        assert not any(pages.serves_health(f"{url}/{name}") for name in names)
        server.shutdown()
    assert [each.payload for each in answers] == [None] * len(names)
    lines = [f"{name} {each.fault}\n" for name, each in zip(names, answers, strict=True)]
    golden("status_faults.txt", "".join(lines))


def test_a_watch_asks_again_until_it_is_interrupted(
    scene: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    result = run(f"--url {scene.url} --watch")
    assert result.exit_code == 0
    assert pauses == [1.0] * 3
    assert result.stdout.count("celery@one") == 3
