"""S3 and STS on loopback, and what boto3 needs to talk to them."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.support.servers import free_port

BUCKET = "journals"


def environment(port: int) -> dict[str, str]:
    """Return the variables by which boto3 finds the server on that port."""
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
    }


def new_server(port: int) -> ThreadedMotoServer:
    """Start a server with one empty bucket, once boto3 finds it."""
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    # All servers of a process share their contents.
    urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/reset", data=b"").close()
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    return server


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run a server that boto3 finds in this process, and yield a client."""
    port = free_port()
    for name, value in environment(port).items():
        monkeypatch.setenv(name, value)
    server = new_server(port)
    try:
        yield boto3.client("s3")
    finally:
        server.stop()


def upload(journal: Path, prefix: str) -> None:
    """Put a journal's files under a prefix of the bucket."""
    client = boto3.client("s3")
    for path in journal.rglob("*.*"):
        client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(journal).as_posix()}")


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
