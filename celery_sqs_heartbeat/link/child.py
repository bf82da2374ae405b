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

#: Has Prometheus's client keep its values in the application's files, where they would be shown
#: as the application's own. The keeper's have a page of their own.
_NOT_INHERITED = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
#: A module of the worker's folder must not stand in for one of Python's own, as `-m` would have it.
_PYTHON = (sys.executable, "-P") if sys.version_info >= (3, 11) else (sys.executable,)


class Child(Protocol):
    """A keeper's process, as its worker knows it."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def has_ended(self) -> bool:
        """Return whether it has ended. It leaves no zombie then."""

    def kill(self) -> None:
        """End it at once, and wait for that."""

    def describe_end(self) -> str:
        """Return how it ended, in words."""


class KeeperProcess:
    """A keeper's process.

    In a session of its own: what a terminal or a supervisor sends to the worker's process group
    does not reach it. It ends when the worker has.

    Args:
        link: The descriptor of its end of the link.
        table: That of the table of leases.

    Raises:
        OSError: The system grants no process.
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
            return "it runs"
        return f"signal {_signal_name(-status)}" if status < 0 else f"exit status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most of the real-time signals have no name.
        return str(number)


def _environment() -> dict[str, str]:
    """Return the worker's environment, in which this very package is found."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    package = str(Path(__file__).parents[2])
    if package in (*site.getsitepackages(), site.getusersitepackages()):
        # It is found anyway; ahead of Python's own modules, others of that folder would hide them.
        return kept
    inherited = kept.get("PYTHONPATH")
    return {**kept, "PYTHONPATH": package if not inherited else f"{inherited}{os.pathsep}{package}"}
