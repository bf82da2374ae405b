"""The status server of a real keeper, over the wire."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from select import select
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.observe import status
from celery_sqs_heartbeat.observe.status import MAX_WAITING, serve
from tests.support.observed import TOKEN, Observed, observed
from tests.support.waiting import PATIENCE, wait_until

#: Due for extension a tenth of a second after each extension.
EAGER = LeaseTerms(visibility_timeout=30, threshold=29.9)
PATHS = (
    *("/", "/page.css", "/page.js", "/icon.svg"),
    *("/livez", "/readyz", "/healthz", "/metrics", "/leases", "/events"),
)


@pytest.fixture
def scene() -> Iterator[Observed]:
    with observed(name="celery@host") as scene:
        yield scene


class Answer:
    """The answer to a request."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        return json.loads(self.body)


def get(scene: Observed, path: str, *, method: str = "GET", **headers: str) -> Answer:
    request = urllib.request.Request(scene.url + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def send(scene: Observed, *parts: bytes) -> bytes:
    """Send raw bytes and return the whole answer, even if the connection is aborted."""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", scene.server.port), PATIENCE) as client,
        suppress(ConnectionError),
    ):
        for part in parts:
            client.sendall(part)
        while more := client.recv(65_536):
            answer += more
    return answer


@contextmanager
def idle_connections(scene: Observed, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Hold connections open that have sent these bytes and then stay idle."""
    connections = []
    with ExitStack() as stack:
        for _ in range(count):
            idle = socket.create_connection(("127.0.0.1", scene.server.port), PATIENCE)
            stack.enter_context(idle)
            idle.sendall(sent)
            connections.append(idle)
        yield connections


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def test_every_answer_has_the_headers_that_keep_it_safe_and_no_handle(scene: Observed) -> None:
    scene.keeper.release(scene.receive("a"))
    scene.receive("b", terms=EAGER)
    wait_until(lambda: get(scene, "/events").json()["happenings"])
    for path in PATHS:
        answer = get(scene, path)
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Access-Control-Allow-Origin"] is None
        assert b"SECRET" not in answer.body
        head = get(scene, path, method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert int(head.headers["Content-Length"]) > 0


def test_an_unknown_path_is_not_found(scene: Observed) -> None:
    answer = get(scene, "/etc/passwd")
    assert answer.status == 404
    assert b"are /, /events, /healthz, /leases, /livez, /metrics, /readyz." in answer.body
    assert get(scene, "/../page.css").status == 404


def test_only_this_machines_own_names_are_served(scene: Observed) -> None:
    own = ("localhost", "localhost:1", "127.0.0.1:9808", "[::1]:9808", "[::1]")
    rebound = ("rebound.example", "127.0.0.1.rebound.example", "localhost.rebound.example:9808", "")
    for host in (*own, *rebound):
        for path in ("/leases", "/", "/healthz"):
            assert get(scene, path, Host=host).status == (200 if host in own else 403), host


def test_where_a_token_is_set_all_data_need_it() -> None:
    with observed(token=TOKEN) as scene:
        for path in ("/leases", "/events", "/metrics", "/unknown"):
            answer = get(scene, path)
            assert (answer.status, "Bearer" in answer.headers["WWW-Authenticate"]) == (401, True)
            for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ", "Bearer \xe4", TOKEN):
                assert get(scene, path, Authorization=wrong).status == 401
            assert get(scene, f"{path}?token={TOKEN}").status == 401
            right = get(scene, path, Authorization=f"Bearer {TOKEN}").status
            assert right == (404 if path == "/unknown" else 200)
        for path in ("/", "/page.js", "/page.css", "/healthz"):
            assert get(scene, path).status == 200


MALFORMED = (
    (b"hello", 400),
    (b"GET /leases HTTP/1.1", 403),
    (b"GET /leases HTTP/2.0\r\nHost: localhost", 505),
    (b"GET /leases HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 403),
    (b"GET /leases HTTP/1.1\r\nHost: localhost\r\n folded: x", 403),
    (b"GET /leases HTTP/1.1\r\nHost localhost", 403),
    (b"GET /leases HTTP/1.1\r\nHost: local\x00host", 403),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"GET /leases?" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost", 414),
    (b"GET /healthz HTTP/1.0\r\nHost: localhost", 200),
)


def test_malformed_requests_are_refused(scene: Observed) -> None:
    for request, expected in MALFORMED:
        assert status_of(send(scene, request + b"\r\n\r\n")) == expected, request[:80]
        assert get(scene, "/healthz").status == 200


def test_a_request_that_never_ends_is_aborted(
    scene: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status._Exchange, "timeout", 0.1)
    assert send(scene, b"GET /healthz HTTP/1.1\r\n") == b""


#: What a client sends before it stays silent: a part of a request, or a request whose answer it
#: never reads.
SILENCES = [b"GET /lea", b"GET /leases HTTP/1.1\r\nHost: localhost\r\n\r\n"]


@pytest.mark.parametrize("silence", SILENCES, ids=["a part", "no taker"])
def test_a_probe_is_answered_however_many_connections_are_idle(
    silence: bytes, scene: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No idle connection is closed early.
    monkeypatch.setattr(status._Exchange, "timeout", PATIENCE)
    for number in range(500):
        scene.receive(f"m{number}")
    with idle_connections(scene, 200, silence) as idle:
        if silence.endswith(b"\r\n\r\n"):
            # While their answers are computed, there may be too many to compute another. That of
            # a connection that was closed in favour of others may still be.
            wait_until(
                lambda: (
                    len(select(idle, [], [], 0)[0]) == len(idle)
                    and request_threads() <= MAX_WAITING
                )
            )
        for _ in range(3):
            assert get(scene, "/healthz").status == 200
            assert get(scene, "/leases").status == 200
        wait_until(lambda: request_threads() <= MAX_WAITING)
        assert threading.active_count() < MAX_WAITING + 20
    wait_until(lambda: not request_threads())


def request_threads() -> int:
    return sum("process_request" in each.name for each in threading.enumerate())


def test_a_fault_of_our_own_is_an_answer_and_a_log_line(
    scene: Observed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scene.keeper, "snapshot", lambda: 1 / 0)
    assert get(scene, "/leases").status == 500
    assert "sqs-heartbeat: the status page failed on /leases" in caplog.text
    assert get(scene, "/healthz").status == 200


def test_a_worker_runs_although_the_port_is_taken(
    scene: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{scene.server.port}"
    assert serve(address, {}) is None
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith(f"sqs-heartbeat: no status page: sqs_heartbeat_status={address} can't")


def test_others_may_use_any_name_of_this_machine_and_need_the_token() -> None:
    with observed(token=TOKEN) as scene:
        scene.server.stop()
        scene.serve("0.0.0.0:0")
        assert get(scene, "/leases").status == 401
        assert get(scene, "/healthz", Host="worker.example").status == 200
