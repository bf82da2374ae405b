"""Starts and ends a keeper, and decides whether it hangs.

It is normally a process, and at a worker's end maybe a thread.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from celery_sqs_heartbeat.current.sharing import SharedFile
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.leases.events import MOST_HANGING
from celery_sqs_heartbeat.link.watching import signals_held_back

#: How often the worker checks its keeper, in seconds.
LOOK_SECONDS = 0.2
#: A keeper hangs if it wrote no tick and was not busy at so many checks: one second.
_LOOKS = 5
#: It also hangs if it wrote no tick and was busy at so many checks: five seconds, because a busy
#: machine may delay it.
_BUSY_LOOKS = 25
#: A check that comes so many seconds too late does not count: the machine is busy, or the worker
#: itself had stopped.
_SLACK = 0.1
#: A keeper that starts hangs if it was not busy at so many checks: three seconds, because it may
#: have to load its code from a slow disk.
_START_LOOKS = 15
#: How long a keeper may take to start on a busy machine, in seconds.
_START_SECONDS = 30.0

#: The state of a thread that runs, or waits for a CPU (proc(5)).
_RUNNABLE = "R"
#: If a keeper has lived for so many seconds, the pauses before the next one start over.
LONG_LIFE = 60.0

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
        status = self._process.wait()
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
        return "exit status 0"


#: A keeper, as its worker sees it.
Child = KeeperProcess | KeeperThread


def is_unfit(hanging: int, age: float) -> bool:
    """Return whether calls occupy so many threads of a keeper that another one should continue.

    They do not harm other queues at once. So it first lives long enough for its successor to start
    without a pause. If calls hang for hours, a keeper is then replaced once a minute at most.

    Args:
        hanging: How many of its calls hang.
        age: How long it has lived, in seconds.
    """
    return hanging >= MOST_HANGING and age >= LONG_LIFE


class LivenessMonitor:
    """Checks the ticks that a keeper writes into the table, five times a second.

    A check that comes late does not count. So a worker that was stopped, for example by a task
    that lets no other thread run, does not take its keeper for dead when it continues.

    Args:
        table: Where the keeper writes its ticks. It has none yet.
        clock: Monotonic seconds.
        is_busy: Returns whether the keeper runs or waits for a CPU. A new keeper would have to
            wait as well.

    Attributes:
        began_at: When the keeper was started.
    """

    def __init__(
        self,
        table: Table,
        clock: Callable[[], float],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._table = table
        self._clock = clock
        self._is_busy = is_busy
        self.began_at = self._looked_at = clock()
        self._tick = 0.0
        self._idle = self._busy = 0

    def is_gone(self) -> bool:
        """Check the keeper. Return whether it hangs.

        While it starts, it hangs if it was busy once and then idle for too long. Without /proc,
        `is_busy` is never true, and neither is this.
        """
        now, tick = self._clock(), self._table.tick
        passed, self._looked_at = now - self._looked_at, now
        if tick != self._tick:
            self._tick = tick
            self._idle = self._busy = 0
            return False
        if passed > LOOK_SECONDS + _SLACK:
            return False
        is_busy = self._is_busy()
        self._busy += is_busy
        self._idle += not is_busy
        if tick > 0:
            return self._idle >= _LOOKS or self._busy >= _BUSY_LOOKS
        if is_busy or not self._busy:
            self._idle = 0
        return self._idle >= _START_LOOKS or now - self.began_at > _START_SECONDS


def is_busy(pid: int) -> bool:
    """Return whether a thread of a process runs, or waits for a CPU. False without /proc.

    On a busy machine a process may wait for a CPU for seconds. A process that was stopped, or
    hangs in a lock or in the network, does not wait for a CPU.
    """
    return any(_state(thread) == _RUNNABLE for thread in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(stat: Path) -> str:
    try:
        # The process's name comes before the state and may contain any characters.
        return stat.read_text(errors="replace").rpartition(") ")[2][:1]
    except OSError:
        # The thread has ended.
        return ""


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
    # Python ignores entries that are no text.
    known = [entry for entry in sys.path if isinstance(entry, str)]
    return [*known, "", str(Path(__file__).parents[2])]


def _interpreter() -> str:
    """Return the Python that runs this process, or else the one of its standard library.

    In a program that embeds Python, `sys.executable` may be empty, or be that program.
    """
    if "py" in Path(sys.executable or "").name.lower():
        return sys.executable
    major, minor, *_ = sys.version_info
    return str(Path(sys.base_exec_prefix, "bin", f"python{major}.{minor}"))
