"""Starts and ends a keeper: normally a process, at a worker's end maybe a thread."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Protocol

from celery_sqs_heartbeat.current.sharing import SharedFile
from celery_sqs_heartbeat.link.watching import signals_held_back

#: With these, Prometheus's client would keep the keeper's metrics in the application's files and
#: show them as the application's. The keeper has its own metrics page.
_NOT_INHERITED = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
_MODULE = "celery_sqs_heartbeat.keeper"
#: Runs that module with the worker's path. The standard library comes first: the worker's folder
#: may have a module of the same name, which the worker did not import. Programs that the keeper
#: starts, such as `credential_process`, get the worker's whole environment.
_RUN = """\
import sys
sys.path[:] = filter(None, sys.path)
import json, os, runpy
path, environ = json.load(sys.stdin)
library = os.path.dirname(os.__file__)
sys.path[:] = [library, os.path.join(library, "lib-dynload"), *path]
os.environ.update(environ)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class Child(Protocol):
    """A keeper's process, as its worker sees it."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def has_ended(self) -> bool:
        """Return whether it has ended. It leaves no zombie then."""

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""

    def describe_end(self) -> str:
        """Return how it ended, in words."""


class KeeperProcess:
    """A keeper's process.

    It has its own session: signals that a terminal or a supervisor sends to the worker's process
    group do not reach it. It exits after its worker.

    It can import what its worker can. Its interpreter starts without `PYTHONPATH`, so it loads no
    `sitecustomize` from there: that is how tools that instrument applications load their hooks.

    Args:
        link: The descriptor of its end of the link.
        deliveries: The descriptor of its end of the deliveries.
        table: The descriptor of the table of leases.

    Raises:
        OSError: The system cannot start a process.
    """

    def __init__(self, link: int, deliveries: int, table: int) -> None:
        environ = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        later = {name: environ.pop(name) for name in ("PYTHONPATH",) if name in environ}
        # Not an argument or a variable, whose length is limited, nor a pipe, which may block.
        given = json.dumps((_import_path(), later)).encode()
        with closing(SharedFile(len(given))) as file, signals_held_back():
            file.memory[:] = given
            os.lseek(file.descriptor, 0, os.SEEK_SET)
            self._process = subprocess.Popen(  # noqa: S603
                [_interpreter(), "-c", _RUN, _MODULE, str(link), str(deliveries), str(table)],
                stdin=file.descriptor,
                pass_fds=(link, deliveries, table),
                start_new_session=True,
                env=environ,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Return whether it has ended. It leaves no zombie then."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once, and wait for that."""
        if not self.has_ended():
            self._process.kill()
            self._process.wait()

    def describe_end(self) -> str:
        """Return how it ended, in words."""
        status = self._process.poll()
        if status is None:
            return "still running"
        return f"signal {_signal_name(-status)}" if status < 0 else f"exit status {status}"


class KeeperThread:
    """A keeper on a thread of its worker, which ends because no process becomes its keeper.

    Args:
        link: The descriptor of its end of the link.
        deliveries: The descriptor of its end of the deliveries.
        table: The descriptor of the table of leases.
    """

    pid = 0

    def __init__(self, link: int, deliveries: int, table: int) -> None:
        # Few workers ever need the keeper's modules.
        from celery_sqs_heartbeat.link.keeper_main import run

        self._thread = threading.Thread(
            target=run,
            args=(os.dup(link), os.dup(deliveries), table),
            kwargs={"logs": False},
            name="sqs-heartbeat-last-keeper",
            daemon=True,
        )
        self._thread.start()

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return not self._thread.is_alive()

    def kill(self) -> None:
        """Leave it to the end of the worker: threads can't be killed."""

    def describe_end(self) -> str:
        """Return how it ended, as its process would have."""
        return "exit status 0" if self.has_ended() else "still running"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most of the real-time signals have no name.
        return str(number)


def _import_path() -> list[str]:
    """Return where this process finds modules, and where it may have found those it has imported.

    Celery has its working folder on the path only while it imports the app. An import hook may
    have found this package elsewhere.
    """
    return [*filter(_is_text, sys.path), "", str(Path(__file__).parents[2])]


def _is_text(entry: object) -> bool:
    # Python ignores others.
    return isinstance(entry, str)


def _interpreter() -> str:
    """Return the Python that runs this process, or else the one of its standard library.

    In a program that embeds Python, `sys.executable` may be empty, or be that program.
    """
    if "py" in Path(sys.executable or "").name.lower():
        return sys.executable
    major, minor, *_ = sys.version_info
    return str(Path(sys.base_exec_prefix, "bin", f"python{major}.{minor}"))
