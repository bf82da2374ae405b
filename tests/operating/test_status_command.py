"""`celery sqs-heartbeat status`, against status pages of real keepers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from celery_sqs_heartbeat.cli import leasetable, pages
from celery_sqs_heartbeat.cli.status import status
from tests.support.observed import TOKEN, Observed, observed


@pytest.fixture
def scene() -> Iterator[Observed]:
    with observed(name="celery@one") as scene:
        scene.receive("a", task="shop.pay")
        scene.receive("b", task="shop.pay")
        yield scene


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner(env={"COLUMNS": "120", **(env or {})}).invoke(status, arguments)


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that nothing answers at, nor can: its port is taken, but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_workers_and_their_leases_are_drawn(scene: Observed) -> None:
    with observed() as other:
        other.receive("c", task="shop.mail")
        result = run("--url", scene.url, "--url", f"{other.url}/")
        assert other.url in result.stdout
    assert result.exit_code == 0
    assert "celery@one" in result.stdout
    assert [line.split()[:3] for line in result.stdout.splitlines() if "orders" in line] == [
        ["orders", "shop.mail", "1"],
        ["orders", "shop.pay", "2"],
    ]


def test_scripts_get_what_the_pages_say(scene: Observed, nowhere: str) -> None:
    result = run("--url", scene.url, "--url", nowhere, "--json")
    told, missing = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (told["url"], told["in_flight"], len(told["leases"])) == (scene.url, 2, 2)
    assert missing["url"] == nowhere
    assert "does not answer" in missing["error"]


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_that_nothing_answers_is_told_and_the_exit_status(
    how: tuple[str, ...], nowhere: str
) -> None:
    result = run("--url", nowhere, *how)
    assert result.exit_code == 1
    assert f"{nowhere}: does not answer" in result.stderr
    assert "sqs_heartbeat_status is set" in result.stderr


def test_a_token_is_sent_and_asked_for() -> None:
    with observed(token=TOKEN) as scene:
        result = run("--url", scene.url)
        assert result.exit_code == 1
        assert "wants the right token" in result.stderr
        assert run("--url", scene.url, "--token", TOKEN).exit_code == 0
        assert run("--url", scene.url, env={"SQS_HEARTBEAT_STATUS_TOKEN": TOKEN}).exit_code == 0


@pytest.mark.parametrize("url", ["127.0.0.1:9808", "file:///etc/passwd", "http://", "http://[x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    result = run("--url", url)
    assert result.exit_code == 2
    assert "is no address like" in result.stderr


@pytest.mark.parametrize("secret", ["/?token={}", "/#token={}", "/x?a=1&token={}"])
def test_a_token_in_an_address_is_refused_and_not_shown(secret: str) -> None:
    result = run("--url", "http://127.0.0.1:9808" + secret.format(TOKEN))
    assert result.exit_code == 2
    assert "SQS_HEARTBEAT_STATUS_TOKEN" in result.stderr
    assert TOKEN not in result.output


class _Other(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/leases":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]" if "list" in self.path else b"<html>")

    def log_message(self, *_: object) -> None:
        pass


def test_another_server_is_not_taken_for_a_worker() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        answers = pages.ask_all([url, f"{url}/html", f"{url}/list"], TOKEN)
        server.shutdown()
    assert [answer.fault for answer in answers] == [
        "answered with HTTP status 302",
        "that is no worker's status page",
        "that is no worker's status page",
    ]


def test_a_watch_draws_again_until_it_is_interrupted(
    scene: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(leasetable.time, "sleep", sleep)
    result = run("--url", scene.url, "--watch")
    assert result.exit_code == 0
    assert pauses == [1.0] * 3
    assert run("--watch", "--json").exit_code == 2


def test_a_lost_lease_stands_out() -> None:
    lease = {"queue": "q", "task": None, "held_for": 70.0, "expires_in": -3.0, "standing": "lost"}
    health = {"status": "late"}
    told = {"worker": "w", "health": health, "in_flight": 1, "pending_deletes": 0}
    told |= {"pending_releases": 0, "oldest": 70.0, "leases": [lease]}
    console = Console(record=True, width=100)
    leasetable.print_tables([pages.PageAnswer(url="u", payload=told)], console)
    shown = console.export_text()
    assert "late" in shown
    assert "-3 s" in shown
