"""An S3 on loopback, and what boto3 needs to talk to it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
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
