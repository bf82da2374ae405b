"""`celery sqs-heartbeat status`, against status pages of real keepers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner, Result

from celery_sqs_heartbeat.cli import page_requests
from celery_sqs_heartbeat.cli.status import page_answers
from celery_sqs_heartbeat.cli.status.command import status
from celery_sqs_heartbeat.cli.status.page_targets import Target
from celery_sqs_heartbeat.cli.terminal import watching
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from tests.support.observed import TOKEN, Observed, observed
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def patient_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page take as long as it needs to answer."""
    monkeypatch.setattr(page_requests, "PATIENCE", PATIENCE)


@pytest.fixture
def scene() -> Iterator[Observed]:
    with observed(name="celery@one") as scene:
        scene.receive("a", task="shop.pay")
        scene.receive("b", task="shop.pay")
        yield scene


def run(
    *arguments: str, env: dict[str, str] | None = None, settings: Mapping[str, Any] | None = None
) -> Result:
    """Run the command, for an app with these settings."""
    app = Celery(set_as_current=False)
    app.conf.update(settings or {})
    return run_with(app, *arguments, env=env)


def run_with(app: Any, *arguments: str, env: dict[str, str] | None = None) -> Result:
    context = SimpleNamespace(app=app, no_color=False)
    return CliRunner(env=env or {}).invoke(status, arguments, obj=context)


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address at which nothing can answer: its port is taken, but no one listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def rows(shown: str) -> list[list[str]]:
    """Return the words of each line of the table of tasks."""
    return [line.split() for line in shown.partition("Queue")[2].splitlines()[1:]]


def test_workers_and_their_leases_are_shown(scene: Observed) -> None:
    scene.keeper.note_start("SECRET-a-1")
    with observed() as other:
        other.receive("c", task="shop.mail")
        other.receive("d", task="shop.pay")
        result = run("--url", scene.url, "--url", f"{other.url}/")
        assert other.url in result.stdout
    assert result.exit_code == 0
    (one,) = [line.split() for line in result.stdout.splitlines() if "celery@one" in line]
    assert one[:5] == ["celery@one", "ok", "2", "1", "1"]
    assert [row[:5] for row in rows(result.stdout)] == [
        ["orders", "shop.mail", "1", "0", "1"],
        ["orders", "shop.pay", "3", "1", "2"],
    ]


def test_message_groups_and_stopped_groups_are_shown_if_there_are_any(scene: Observed) -> None:
    assert "Groups" not in run("--url", scene.url).stdout
    failed = scene.receive_in_order("B4", 1)
    for number in range(3):
        scene.receive_in_order("A17", number)
    scene.keeper.release(failed, 600, cause="failed")
    assert scene.keeper.flush(PATIENCE)
    # It is recorded after the keeper's flush.
    wait_until(lambda: scene.data.events()["happenings"])
    shown = run("--url", scene.url).stdout
    workers, tasks, stopped = [
        [line.split() for line in table.splitlines()] for table in shown.strip().split("\n\n")
    ]
    assert (workers[0][-3:], workers[1][-3:]) == (["Groups", "Behind", "Stopped"], ["1", "2", "1"])
    assert (tasks[0][-1], [row[-1] for row in tasks[1:]]) == ("Behind", ["0", "2"])
    assert stopped[1][:5] == ["orders.fifo", "B4", "unknown", "failed", "1"]
    assert 0 < int(stopped[1][-2]) <= 600


def test_all_leases_are_counted_however_many_there_are(scene: Observed) -> None:
    for number in range(1_998):
        scene.receive(f"m{number}", task=f"shop.{number % 2}")
    result = run("--url", scene.url)
    (worker,) = [line.split() for line in result.stdout.splitlines() if "celery@one" in line]
    assert worker[:5] == ["celery@one", "ok", "2,000", "0", "2,000"]
    assert [row[1:3] for row in rows(result.stdout)] == [
        ["shop.0", "999"],
        ["shop.1", "999"],
        ["shop.pay", "2"],
    ]
    (told,) = json.loads(run("--url", scene.url, "--json").stdout)
    assert (told["in_flight"], len(told["leases"]), told["leases_left_out"]) == (2_000, 500, 1_500)


def test_scripts_get_the_contents_of_the_pages(scene: Observed, nowhere: str) -> None:
    result = run("--url", scene.url, "--url", nowhere, "--json")
    told, missing = json.loads(result.stdout)
    assert (told["url"], told["in_flight"], len(told["leases"])) == (scene.url, 2, 2)
    assert missing["url"] == nowhere
    assert "does not answer" in missing["error"]


def test_one_worker_of_several_that_does_not_answer_sets_the_exit_status(
    scene: Observed, nowhere: str
) -> None:
    result = run("--url", scene.url, "--url", nowhere)
    assert result.exit_code == 1
    assert "celery@one" in result.stdout
    assert f"\n{nowhere}: does not answer (Connection refused)" in result.stdout


def test_a_lease_that_is_not_well_sets_the_exit_status(scene: Observed) -> None:
    scene.sqs.answer = lambda call: [Outcome.LOST] * len(call.entries)
    scene.receive("lost", task="shop.mail", terms=LeaseTerms(visibility_timeout=30, threshold=29.9))
    wait_until(lambda: run("--url", scene.url).exit_code == 1)
    (mail, _) = rows(run("--url", scene.url).stdout)
    assert (mail[1], mail[-1]) == ("shop.mail", "1")


def test_a_dead_keeper_sets_the_exit_status_and_is_explained(scene: Observed) -> None:
    scene.keeper.stop()
    result = run("--url", scene.url)
    assert result.exit_code == 1
    assert "celery@one: its keeper is dead: leases expire" in result.stdout


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_if_nothing_answers_one_line_names_the_address(how: tuple[str, ...], nowhere: str) -> None:
    result = run("--url", nowhere, *how)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {nowhere}: does not answer (Connection refused)")
    assert "sqs_heartbeat_status" in line


def test_the_apps_own_address_and_token_are_used() -> None:
    with observed(token=TOKEN, name="celery@one") as scene:
        address = scene.url.removeprefix("http://")
        settings = {"sqs_heartbeat_status": address, "sqs_heartbeat_status_token": TOKEN}
        result = run(settings=settings)
        assert (result.exit_code, "celery@one" in result.stdout) == (0, True)
        # The app's token is sent to a page that an option names, too.
        del settings["sqs_heartbeat_status"]
        assert run("--url", scene.url, settings=settings).exit_code == 0


def test_an_option_overrides_the_apps_settings(scene: Observed, nowhere: str) -> None:
    settings = {
        "sqs_heartbeat_status": nowhere.removeprefix("http://"),
        "sqs_heartbeat_status_token": f"another-{TOKEN}",
    }
    assert run("--url", scene.url, settings=settings).exit_code == 0
    with observed(token=TOKEN) as locked:
        assert run("--url", locked.url, settings=settings).exit_code == 2
        assert run("--url", locked.url, "--token", TOKEN, settings=settings).exit_code == 0


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({"sqs_heartbeat_status": "127.0.0.1:1"}, "http://127.0.0.1:1 (the app's sqs_heartbeat_s"),
        ({"sqs_heartbeat_status": "0.0.0.0:1"}, "http://127.0.0.1:1 (the app's sqs_heartbeat_s"),
        ({"sqs_heartbeat_status": "[::]:1"}, "http://[::1]:1 (the app's sqs_heartbeat_status)"),
        ({"sqs_heartbeat_status": "localhost:1"}, "http://localhost:1 (the app's sqs_heartbeat"),
    ],
)
def test_the_error_names_the_address_and_its_origin(
    settings: Mapping[str, str], asked: str
) -> None:
    result = run(settings=settings)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {asked}")


def test_without_the_setting_the_default_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Target] = []

    def ask(targets: list[Target], token: str | None) -> list[page_answers.PageAnswer]:
        asked.extend(targets)
        return [page_answers.PageAnswer(target=target, fault="is away") for target in targets]

    monkeypatch.setattr(page_answers, "ask_all", ask)
    result = run()
    assert [target.url for target in asked] == ["http://127.0.0.1:9808"]
    assert result.stderr == (
        "Error: http://127.0.0.1:9808 (the default: the app sets no sqs_heartbeat_status): "
        "is away\n"
    )


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"sqs_heartbeat_status": "127.0.0.1:0"}, "takes any free port and logs its number"),
        ({"sqs_heartbeat_status": "9808"}, "sqs_heartbeat_status='9808': must be 'HOST:PORT'"),
        ({"sqs_heartbeat_status": 9808}, "sqs_heartbeat_status=9808: must be 'HOST:PORT'"),
        (
            {"sqs_heartbeat_status": "127.0.0.1:1", "sqs_heartbeat_status_token": "short-secret"},
            "sqs_heartbeat_status_token=...: must be at least 16",
        ),
    ],
)
def test_a_setting_that_can_not_be_used_is_one_line(
    settings: Mapping[str, Any], fault: str
) -> None:
    result = run(settings=settings)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert fault in line
    assert "--url" in line or "--token" in line
    assert "short-secret" not in line


def test_settings_that_can_not_be_read_are_one_line_and_not_needed_with_options(
    scene: Observed,
) -> None:
    app = Celery(set_as_current=False)
    app.config_from_object("there_is_no_such_module")
    result = run_with(app)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "the app's settings can't be read (ModuleNotFoundError: No module named" in line
    assert "use --url and --token" in line
    assert run_with(app, "--url", scene.url, "--token", TOKEN).exit_code == 0


def test_a_token_is_sent_and_asked_for() -> None:
    with observed(token=TOKEN) as scene:
        result = run("--url", scene.url)
        assert result.exit_code == 2
        assert "needs its token" in result.stderr
        assert run("--url", scene.url, "--token", TOKEN).exit_code == 0
        assert run("--url", scene.url, env={"SQS_HEARTBEAT_STATUS_TOKEN": TOKEN}).exit_code == 0


@pytest.mark.parametrize("token", ["", "short", "a-long-token\nin-two-lines", "ä" * 20])
def test_an_invalid_token_is_refused(token: str) -> None:
    result = run("--token", token)
    assert result.exit_code == 2
    assert "must be at least 16 visible ASCII characters" in result.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:9808", "file:///etc/passwd", "http://", "http://[x"])
def test_an_invalid_address_is_refused(url: str) -> None:
    result = run("--url", url)
    assert result.exit_code == 2
    assert "is not an address like" in result.stderr


@pytest.mark.parametrize("secret", ["/?token={}", "/#token={}", "/x?a=1&token={}"])
def test_a_token_in_an_address_is_refused_and_not_shown(secret: str) -> None:
    result = run("--url", "http://127.0.0.1:9808" + secret.format(TOKEN))
    assert result.exit_code == 2
    assert "SQS_HEARTBEAT_STATUS_TOKEN" in result.stderr
    assert TOKEN not in result.output


class _Other(BaseHTTPRequestHandler):
    """A server that is not a worker's. It answers with the last part of the path."""

    def do_GET(self) -> None:
        if self.path == "/leases":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        name = self.path.split("/")[1]
        self.wfile.write(ANSWERS[name].encode())

    def log_message(self, *_: object) -> None:
        pass


_TASK = {"queue": "q", "task": None, "in_flight": 1}
ANSWERS = {
    "html": "<html>",
    "list": "[]",
    "deep": "[" * 100_000,
    "number": '{"leases": 3}',
    "older": json.dumps({"leases": [], "in_flight": 0, "health": {"status": "ok"}}),
    "task": json.dumps({"leases": [], "tasks": [_TASK]}),
}


def test_another_server_is_not_taken_for_a_worker() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        asked = [Target(url=url), *(Target(url=f"{url}/{name}") for name in ANSWERS)]
        answers = page_answers.ask_all(asked, TOKEN)
        server.shutdown()
    other = "this is not a worker's status page: check the address"
    version = "its worker runs another version"
    expected = [f"answered with HTTP status 302: {other}", *[other] * 4, *[version] * 2]
    for answer, fault in zip(answers, expected, strict=True):
        assert answer.payload is None
        assert answer.fault.startswith(fault), answer.target


def test_a_watch_shows_it_again_until_it_is_interrupted(
    scene: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", sleep)
    result = run("--url", scene.url, "--watch")
    assert result.exit_code == 0
    assert pauses == [1.0] * 3
    assert result.stdout.count("celery@one") == 3
    assert run("--watch", "--json").exit_code == 2
