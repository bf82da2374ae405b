"""A service that issues tokens for roles, as STS does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeSts:
    """Answers each AssumeRole request with a new key.

    Attributes:
        url: Its endpoint.
        seconds: How long its tokens last.
        served: The bodies of the requests.
    """

    def __init__(self) -> None:
        self.url = ""
        self.seconds = 900.0
        self.served: list[str] = []

    def answer(self, request: str) -> str:
        """Return the answer to a request's body."""
        self.served.append(request)
        ends = datetime.now(timezone.utc) + timedelta(seconds=self.seconds)
        return (
            "<AssumeRoleResponse><AssumeRoleResult><Credentials>"
            f"<AccessKeyId>role-key-{len(self.served)}</AccessKeyId>"
            "<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
            f"<Expiration>{ends.strftime('%Y-%m-%dT%H:%M:%SZ')}</Expiration>"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )


@contextmanager
def serving_sts() -> Iterator[FakeSts]:
    """Serve on loopback while the block runs."""
    sts = FakeSts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            answer = sts.answer(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        sts.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield sts
        server.shutdown()
        thread.join()
