"""The status page of a worker whose threads and sockets are gevent's or eventlet's."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE, wait_until
from tests.support.workers import ROOT


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_it_answers_while_a_task_does_not_yield(library: str, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.patched_status", library, str(stop)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            assert process.stdout
            port = int(process.stdout.readline())

            def get(path: str) -> str:
                url = f"http://127.0.0.1:{port}{path}"
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    return str(answer.read().decode())

            def extensions() -> float:
                found = re.search(
                    r"^sqs_heartbeat_extensions_total\S* (\S+)$", get("/metrics"), re.M
                )
                return float(found[1]) if found else 0

            wait_until(lambda: extensions() >= 3)
            with ThreadPoolExecutor(4) as threads:
                answers = list(
                    threads.map(get, ["/metrics", "/leases", "/healthz", "/events"] * 10)
                )
            assert '"status":"ok"' in answers[2]
            with ExitStack() as stack:
                for _ in range(200):
                    idle = socket.create_connection(("127.0.0.1", port), PATIENCE)
                    stack.enter_context(idle)
                assert '"status":"ok"' in get("/healthz")
            assert process.poll() is None
            stop.touch()
            assert process.communicate(timeout=PATIENCE)[0] == "ended\n"
            assert process.returncode == 0
        finally:
            process.kill()
