"""Fetches other projects' tests, of the versions that are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "peers"
#: The parts used of a source distribution. Not its package: the installed one is tested.
_WANTED = ("t", "pyproject.toml", "setup.cfg")


def fetch(package: str) -> Path:
    """Return a new copy of the tests of a package that is installed.

    Raises:
        RuntimeError: pip can't get them. Contains pip's error.
    """
    name = f"{package}-{version(package)}"
    archive = FOLDER / f"{name}.tar.gz"
    if not archive.exists():
        _download(package)
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    with tarfile.open(archive) as tar:
        wanted = [each for each in tar.getmembers() if _is_wanted(each.name)]
        tar.extractall(FOLDER, members=wanted, filter="data")
    return FOLDER / name


def _is_wanted(path: str) -> bool:
    _, _, inside = path.partition("/")
    return inside.partition("/")[0] in _WANTED


def _download(package: str) -> None:
    wanted = f"{package}=={version(package)}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command = [*pip, "--no-binary", package, "--dest", str(FOLDER), wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
