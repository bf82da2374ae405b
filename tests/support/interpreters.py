"""The Pythons that the project supports, and where they are on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

#: How long a Python may take to report its version, in seconds.
ANSWER_SECONDS = 60.0
ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def supported(project: str) -> list[str]:
    """Return the versions in the classifiers of a pyproject.toml, in their order."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)


def find(version: str) -> str | None:
    """Return the path of a Python of this version, or None if the machine has none."""
    for path in _candidates(version):
        # pyenv has a shim for every version, which fails if that version is not selected.
        if _answer([path, "-c", ASK_VERSION]) == version:
            return path
    return None


def _candidates(version: str) -> Iterator[str]:
    if version == RUNNING:
        yield sys.executable
    if path := shutil.which(f"python{version}"):
        yield path
    installed = (_answer(["pyenv", "versions", "--bare"]) or "").split()
    for name in installed:
        # Only CPython, not for example `pypy3.10-7.3.12`.
        if re.fullmatch(rf"{re.escape(version)}(\.\d+)?", name):
            prefix = _answer(["pyenv", "prefix", name])
            yield str(Path(prefix or "", "bin", f"python{version}"))
    if path := _answer(["uv", "python", "find", "--offline", version]):
        yield path


def _answer(command: Sequence[str]) -> str | None:
    """Return the output of a command, or None if it is missing or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
