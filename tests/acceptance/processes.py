"""The processes of a worker, as the system knows them."""

from __future__ import annotations

import contextlib

import psutil

from tests.acceptance.scene import Scene

KEEPER = "celery_sqs_heartbeat.keeper"


def keepers_of(pid: int) -> list[int]:
    """Return the keepers of a worker's main process, zombies included."""
    with contextlib.suppress(psutil.NoSuchProcess):
        # A zombie has no command line. A process without our name belongs to the pool.
        return sorted(
            child.pid
            for child in psutil.Process(pid).children()
            if is_zombie(child.pid) or KEEPER in _command(child)
        )
    return []


def keepers_on(scene: Scene) -> list[int]:
    """Return the keepers of all workers of a scene, those without a worker included."""
    return sorted(
        process.pid
        for process in psutil.process_iter()
        if KEEPER in _command(process) and str(scene.ledger) in _environment(process).values()
    )


def pool_of(pid: int) -> list[int]:
    """Return the processes of a worker's pool."""
    keepers = keepers_of(pid)
    children = psutil.Process(pid).children(recursive=True)
    return [child.pid for child in children if child.pid not in keepers]


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended, and no one has asked how."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return False


def living(pids: list[int]) -> list[int]:
    """Return those that exist, zombies included."""
    return [pid for pid in pids if psutil.pid_exists(pid)]


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def _environment(process: psutil.Process) -> dict[str, str]:
    with contextlib.suppress(psutil.Error):
        return dict(process.environ())
    return {}
