"""Forks a process for each request, from one that has already imported what they all need.

`python -m tests.support.warm.server SOCKET` listens on a Unix socket until its standard input is
closed, which is when the test process ends, however it ends. A request is one line of JSON, with
the files for standard output and standard error sent along. The answers are two lines: the process
id, and later how it ended.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Any

from tests.support.clients import read_sqs, share_descriptions

#: The modules that a worker and the doctor import. Each process imports a missing one itself.
MODULES = (
    "billiard.popen_fork",
    "billiard.synchronize",
    "boto3",
    "botocore.signers",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.asynpool",
    "celery.concurrency.prefork",
    "celery.concurrency.solo",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "celery.worker.strategy",
    "celery_sqs_heartbeat.cli.examination",
    "celery_sqs_heartbeat.transport",
    "celery_sqs_heartbeat.worker.heartbeat",
    "celery_sqs_heartbeat.worker.step",
    "kombu.asynchronous.aws.sqs.connection",
    "kombu.transport.SQS",
)
#: Larger than any request, which has the arguments and the environment of one process.
REQUEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Request:
    """One process to fork: the arguments of `python`, and two file descriptors open for writing."""

    args: list[str]
    env: dict[str, str]
    cwd: str
    out: int
    err: int


class Server:
    """Forks, and reports how its processes end. It has one thread, because it forks."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The socket gets its name only once it listens.
        self._listener.bind(f"{path}.new")
        self._listener.listen()
        os.rename(f"{path}.new", path)
        # A signal's number is written here when a process ends.
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        signal.set_wakeup_fd(self._wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._running: dict[int, socket.socket] = {}

    def serve(self) -> Request | None:
        """Return a request in the process that was forked for it, or None at the end."""
        ready = selectors.DefaultSelector()
        for source in (sys.stdin.fileno(), self._listener, self._woken):
            ready.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj == self._listener:
                    if request := self._fork():
                        ready.close()
                        return request
                elif key.fileobj == self._woken:
                    os.read(self._woken, 1024)
                    self._reap()
                else:
                    return None

    def close(self) -> None:
        """Kill what still runs."""
        for pid in self._running:
            # Also kill the process itself: it may have no group yet.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)

    def _fork(self) -> Request | None:
        """Fork for the next request. Return it only in the new process."""
        connection, _ = self._listener.accept()
        request = receive(connection)
        pid = os.fork()
        if pid == 0:
            self._leave()
            # Anyone who knows its id may kill its group, which must exist by then.
            os.setsid()
            connection.sendall(f"{os.getpid()}\n".encode())
            connection.close()
            return request
        os.close(request.out)
        os.close(request.err)
        self._running[pid] = connection
        return None

    def _leave(self) -> None:
        """Make a forked process forget that it was a server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._listener.close()
        os.close(self._woken)
        os.close(self._wakes)
        for connection in self._running.values():
            connection.close()

    def _reap(self) -> None:
        for pid in list(self._running):
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                end = {
                    "exit_code": os.waitstatus_to_exitcode(status),
                    "cpu_seconds": usage.ru_utime + usage.ru_stime,
                }
                with self._running.pop(pid) as connection, contextlib.suppress(BrokenPipeError):
                    connection.sendall(json.dumps(end).encode() + b"\n")


def receive(connection: socket.socket) -> Request:
    """Read a request and the files that come with it."""
    files = array.array("i")
    text, ancillary, _, _ = connection.recvmsg(REQUEST_BYTES, socket.CMSG_LEN(2 * files.itemsize))
    for _, _, data in ancillary:
        files.frombytes(data)
    while not text.endswith(b"\n"):
        text += connection.recv(REQUEST_BYTES)
    fields: dict[str, Any] = json.loads(text)
    out, err = files
    return Request(**fields, out=out, err=err)


def become(request: Request) -> None:
    """Give this process everything that a fresh process has, and run the request in it."""
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((null, request.out, request.err)):
        os.dup2(source, target)
        os.close(source)
    own = set(os.environ.get("PYTHONPATH", "").split(os.pathsep)) | {os.getcwd()}
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    time.tzset()
    tempfile.tempdir = None
    searched = [path for path in request.env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [request.cwd, *searched, *(path for path in sys.path if path not in own)]
    first, *args = request.args
    if first == "-m":
        module, *args = args
        sys.argv[:] = [module, *args]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = [first, *args]
        runpy.run_path(first, run_name="__main__")


def main() -> None:
    """Import the modules, serve, and in a forked process run its request."""
    for module in MODULES:
        importlib.import_module(module)
    share_descriptions()
    read_sqs()
    assert threading.active_count() == 1, "a thread would not come along into a forked process"
    gc.collect()
    # The garbage collector ignores the objects that exist by now, so their memory stays shared.
    gc.freeze()
    server = Server(sys.argv[1])
    request = server.serve()
    if request is None:
        server.close()
    else:
        become(request)


if __name__ == "__main__":
    main()
