"""The status page of a worker: an HTTP server on its own threads.

If a probe is not answered, its worker is restarted, and anyone who reaches the port can open
connections and stay silent. So a new connection closes the oldest of those that wait for their
clients, and the number of answers computed at once is limited, except for probes.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import socketserver
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from celery_sqs_heartbeat.observe.page_data import STUCK, TROUBLES, PageData
from celery_sqs_heartbeat.settings.address import is_loopback, parse_address, url_of

if TYPE_CHECKING:
    from celery_sqs_heartbeat.observe.metrics import Metrics

logger = logging.getLogger(__name__)

#: Answers that are computed at once; one page needs two.
MAX_ANSWERS = 16
#: Connections that wait for their clients: to send a request, or to read an answer.
MAX_WAITING = 20
#: The paths that are always answered. Their answers take microseconds.
PROBES = frozenset({"/livez", "/readyz", "/healthz"})
#: How often the server checks whether it must stop, in seconds.
_POLL = 0.1
#: Pause after the system refused a connection, in seconds.
_FAULT_PAUSE = 0.5
_TEXT = "text/plain; charset=utf-8"
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
#: Paths that need no token, because they contain nothing about messages: the page's own files, and
#: the health, so that a probe needs no secret.
_OPEN = PROBES | set(_FILES)
#: Headers of every answer: nothing is stored, framed, guessed or fetched from elsewhere.
_SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Response(NamedTuple):
    """An answer to a request."""

    body: bytes
    content_type: str = _TEXT
    status: int = 200


Pages = Mapping[str, Callable[[], Response]]


def pages_of(data: PageData, metrics: Metrics) -> Pages:
    """Return what makes the answer of each path."""

    def health(troubles: Container[str]) -> Response:
        shown = data.health()
        return _json(shown, status=503 if shown["status"] in troubles else 200)

    assets = files(__package__) / "assets"
    return {
        # Read now, because later no file descriptor may be left.
        **{
            path: partial(Response, (assets / name).read_bytes(), kind)
            for path, (name, kind) in _FILES.items()
        },
        "/livez": lambda: health(STUCK),
        **dict.fromkeys(("/readyz", "/healthz"), lambda: health(TROUBLES)),
        "/leases": lambda: _json(data.leases()),
        "/events": lambda: _json(data.events()),
        "/metrics": lambda: Response(metrics.exposition(), metrics.content_type),
    }


def _json(payload: Mapping[str, Any], *, status: int = 200) -> Response:
    body = json.dumps(payload, separators=(",", ":")).encode()
    return Response(body, "application/json", status)


def _refusal(status: int, sentence: str) -> Response:
    return Response(f"{sentence}\n".encode(), status=status)


class StatusServer(socketserver.ThreadingTCPServer):
    """Listens at one address once it is made; see `serve`.

    It is not an `HTTPServer`, because that looks up the host's name in DNS, which may hang.

    Args:
        pages: What makes the answer of each path, on several threads at once.
        token: The token that all data needs, or None.

    Raises:
        OSError: The address can't be used.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, pages: Pages, token: str | None = None) -> None:
        self.is_local = is_loopback(host)
        self.token = token
        self._pages = pages
        self._lock = Lock()
        # Connections that wait for their clients. The first is the next to be closed.
        self._waiting: OrderedDict[socket.socket, None] = OrderedDict()
        self._answers = BoundedSemaphore(MAX_ANSWERS)
        self.address_family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__(address, _Exchange)  # type: ignore[arg-type]
        self.port = int(self.server_address[1])

    def stop(self) -> None:
        """Stop accepting connections. Open connections are served to their ends."""
        self.shutdown()
        self.server_close()

    def answer(self, connection: socket.socket, path: str) -> Response:
        """Return the answer to an accepted request."""
        page = self._pages.get(path)
        if page is None:
            known = ", ".join(sorted(set(self._pages) - (set(_FILES) - {"/"})))
            return _refusal(404, f"This path does not exist. The paths are {known}.")
        is_probe = path in PROBES
        if not is_probe and not self._answers.acquire(blocking=False):
            return _refusal(503, "Too many connections at once; try again.")
        # Meanwhile, it does not wait for its client.
        self._leave(connection)
        try:
            return page()
        except Exception:
            logger.exception("sqs-heartbeat: the status page failed on %s", path)
            return _refusal(500, "This failed. The worker's log has the reason.")
        finally:
            self._admit(connection)
            if not is_probe:
                self._answers.release()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            OSError: The system refuses it.
        """
        try:
            return super().get_request()
        except OSError as error:
            logger.warning("sqs-heartbeat: the status page can't accept connections: %s", error)
            time.sleep(_FAULT_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread.

        Raises:
            RuntimeError: The system refuses a new thread.
        """
        self._admit(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log errors that are not of the network. The connection is closed."""
        if not isinstance(sys.exc_info()[1], OSError):
            logger.exception("sqs-heartbeat: the status page failed")

    def _admit(self, connection: socket.socket) -> None:
        with self._lock:
            self._waiting[connection] = None
            if len(self._waiting) > MAX_WAITING:
                oldest, _ = self._waiting.popitem(last=False)
                # Its thread waits in a call on the socket, which returns now.
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def _leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(connection, None)


class _Exchange(BaseHTTPRequestHandler):
    """Answers the one request of a connection."""

    server: StatusServer
    #: How long a client may pause in its request, or take to read its answer, in seconds.
    timeout = 5.0
    # The default is HTTP/0.9, in which an answer has no headers.
    default_request_version = "HTTP/1.0"
    server_version, sys_version = "sqs-heartbeat", ""
    error_content_type, error_message_format = _TEXT, "%(explain)s.\n"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        answer = self._refuse(path) or self.server.answer(self.connection, path)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.status == 401:
            self.send_header("WWW-Authenticate", 'Bearer realm="sqs-heartbeat"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815

    def end_headers(self) -> None:
        for name, value in _SAFE.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *args: Any) -> None:
        """Log nothing: requests are many, and their texts are others'."""

    def _refuse(self, path: str) -> Response | None:
        token = self.server.token
        if self.server.is_local and not _is_own_name(self.headers.get_all("host", [])):
            # A website may have made its own name resolve to this machine.
            return _refusal(403, "Use the host name localhost or 127.0.0.1.")
        if token is None or path in _OPEN:
            return None
        scheme, _, shown = self.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(shown.strip().encode("latin-1"), token.encode())
        if scheme.lower() == "bearer" and is_right:
            return None
        return _refusal(
            401,
            "Send the header 'Authorization: Bearer ...' with the value of "
            "sqs_heartbeat_status_token.",
        )


def _is_own_name(headers: Sequence[str]) -> bool:
    """Return whether there is one header, with a name of this machine.

    The port may differ, because of a tunnel.
    """
    if len(headers) != 1:
        return False
    try:
        host, _ = parse_address(headers[0])
    except ValueError:
        host = headers[0].strip("[]")
    return is_loopback(host.lower())


def serve(address: str, pages: Pages, token: str | None = None) -> StatusServer | None:
    """Serve the pages at `host:port`. If that is impossible, only log it, and return None.

    Args:
        token: The token that all data needs. Without one, the address must be a loopback address,
            which the worker's settings ensure.
    """
    host, port = parse_address(address)
    try:
        server = StatusServer(host, port, pages, token)
        Thread(
            target=server.serve_forever, args=(_POLL,), name="sqs-heartbeat-status", daemon=True
        ).start()
    except (OSError, RuntimeError) as error:
        logger.error(  # noqa: TRY400
            "sqs-heartbeat: no status page: sqs_heartbeat_status=%s can't be used (%s). The worker "
            "continues without it. Each worker on a host needs its own port; port 0 takes any free "
            "one",
            address,
            error,
        )
        return None
    logger.info("sqs-heartbeat: status page at %s/", url_of(host, server.port))
    return server
