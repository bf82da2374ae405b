"""`python -m tests.versions`: shows the promises on other versions of Python and Celery, too.

Each row of `ROWS` has its own virtual environment. As many run at once as the machine has cores. If
the machine lacks a Python, its row runs on the one that runs this, and says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import click

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


ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
FOLDERS = ("tests/integration", "tests/acceptance")
#: Each process has its own server and proxy.
TESTS = ["-n", "2", "--dist", "worksteal", *FOLDERS]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]


class Row(NamedTuple):
    """One environment: its name, its Python, and its group of dependencies in pyproject.toml.

    Attributes:
        marks: Which tests run in it.
    """

    name: str
    python: str
    group: str
    marks: str = "versions"

    @property
    def venv(self) -> Path:
        """The folder of its virtual environment."""
        return ROOT / f".venv-{self.name}"


#: Together with `make test`, every supported Python, Celery and kombu.
ROWS = [
    # Their SQS transport is another one, and so is their urllib3.
    Row("oldest", "3.10", "test-oldest"),
    # The newest that celery-batches works with.
    Row("between", "3.12", "test-between", "versions or batches"),
    Row("newest", "3.13", "test-workers"),
]


def prepare(row: Row, python: str) -> str:
    """Make the virtual environment, unless it is newer than pyproject.toml. Return its Python.

    Raises:
        subprocess.CalledProcessError: It cannot be made.
    """
    own, stamp = str(row.venv / "bin" / "python"), row.venv / "versions.stamp"
    if stamp.exists() and stamp.stat().st_mtime > PROJECT.stat().st_mtime:
        return own
    if not Path(own).exists():
        subprocess.run([python, "-m", "venv", str(row.venv)], check=True)
        pip = ["install", "--quiet", "--upgrade", "pip>=25.1"]
        subprocess.run([own, "-m", "pip", *pip], check=True)
    pip = ["install", "--quiet", "--no-compile", "--editable", ".", "--group", row.group]
    subprocess.run([own, "-m", "pip", *pip], cwd=ROOT, check=True)
    stamp.touch()
    return own


def run(row: Row, python: str, arguments: Sequence[str]) -> bool:
    """Make a virtual environment, run the tests in it, and return whether they pass."""
    try:
        own = prepare(row, python)
    except subprocess.CalledProcessError as error:
        click.echo(f"{row.venv.name} cannot be made: {error}")
        return False
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(row.venv / "pycache")}
    # The installation compiles nothing. Without a cache for what is compiled later, each test
    # process would compile boto3 again, which would add up to minutes.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [own, *PYTEST, *(arguments or [*TESTS, "-m", row.marks])]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, **output)
    click.echo(f"{row.venv.name}:\n{done.stdout}")
    return done.returncode == 0


def judge(row: Row, arguments: Sequence[str]) -> tuple[bool, str]:
    """Run the tests of a row. Return whether they passed, and the verdict."""
    python, which = find(row.python), f"Python {row.python}"
    if python is None:
        python, which = sys.executable, f"Python {RUNNING} because {row.python} is not here"
    begun = time.monotonic()
    passed = run(row, python, arguments)
    how = "passed" if passed else "FAILED"
    return passed, f"{row.name} ({which}): {how} in {time.monotonic() - begun:.0f} s"


@click.command()
@click.option("--only", type=click.Choice([row.name for row in ROWS]), help="This row alone.")
@click.argument("arguments", nargs=-1)
def main(only: str | None, arguments: tuple[str, ...]) -> None:
    """Run the tests that are marked `versions` in an environment for each row.

    ARGUMENTS go to pytest, and replace the usual ones.
    """
    rows = [row for row in ROWS if only in (None, row.name)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda row: judge(row, arguments), rows))
    for _, verdict in verdicts:
        click.echo(verdict)
    sys.exit(not all(passed for passed, _ in verdicts))


if __name__ == "__main__":
    main()
