"""Starts and ends the process of a keeper."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from celery_sqs_heartbeat.link.ignoring import signals_held_back

#: With these, Prometheus's client would keep the keeper's metrics in the application's files and
#: show them as the application's. The keeper has its own metrics page.
_NOT_INHERITED = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
#: `-P`: with `-m` alone, a module in the worker's folder could shadow one of the standard library.
_PYTHON = (sys.executable, "-P") if sys.version_info >= (3, 11) else (sys.executable,)


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

    Args:
        link: The descriptor of its end of the link.
        table: The descriptor of the table of leases.

    Raises:
        OSError: The system cannot start a process.
    """

    def __init__(self, link: int, table: int) -> None:
        with signals_held_back():
            self._process = subprocess.Popen(  # noqa: S603
                [*_PYTHON, "-m", "celery_sqs_heartbeat.keeper", str(link), str(table)],
                stdin=subprocess.DEVNULL,
                pass_fds=(link, table),
                start_new_session=True,
                env=_environment(),
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most of the real-time signals have no name.
        return str(number)


def _environment() -> dict[str, str]:
    """Return the worker's environment, changed so that the keeper imports this same package."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    package = str(Path(__file__).parents[2])
    if package in (*site.getsitepackages(), site.getusersitepackages()):
        # It is found anyway. On PYTHONPATH, other modules of that folder would come before the
        # standard library and could shadow it.
        return kept
    inherited = kept.get("PYTHONPATH")
    return {**kept, "PYTHONPATH": package if not inherited else f"{inherited}{os.pathsep}{package}"}
