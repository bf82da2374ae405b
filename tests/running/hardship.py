"""Makes a machine slow on purpose: by a CPU quota, or by other processes that compute."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

#: The folders of Linux's control groups, version 1 and version 2.
CPU_GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
#: The period of a quota in microseconds: Linux's own default.
PERIOD = 100_000
BUSY = "while True: pass"


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Run so many processes that compute endlessly."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def quota(share: float | None) -> Iterator[None]:
    """Limit this process and its children to a share of the machine's CPU, by a control group.

    Args:
        share: 0.5 is half of all cores; None is all.

    Raises:
        click.ClickException: This machine does not let us make a control group.
    """
    if share is None:
        yield
        return
    root, group = _make_group(round(share * (os.cpu_count() or 1) * PERIOD))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # A leftover process is still in it.
            group.rmdir()


def _make_group(microseconds: int) -> tuple[Path, Path]:
    for root in CPU_GROUPS:
        group = root / f"repeat-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        for name, value in (
            ("cpu.max", f"{microseconds} {PERIOD}"),
            ("cpu.cfs_quota_us", str(microseconds)),
        ):
            if (group / name).exists():
                (group / name).write_text(value)
                return root, group
        group.rmdir()
    raise click.ClickException(
        f"--quota needs to make a control group below {CPU_GROUPS[0]} or {CPU_GROUPS[1]}, which "
        "only root may, where their file system is writable. Without that, run the command by "
        "`systemd-run --user --scope -p CPUQuota=100%` (100% is one core)."
    )
