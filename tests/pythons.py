"""`python -m tests.pythons`: runs the tests that depend on Python's version on each supported one.

Each Python has its own virtual environment, `.venv-3.X`. As many run at once as the machine has
cores. A Python that the machine lacks is reported and skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.support.interpreters import RUNNING, find, supported

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
STAMP = "pythons.stamp"
GROUP = "test-pythons"
#: The tests that need no Spark, no browser and no worker process. Without the simulation: it takes
#: longer than all of these, and nothing in it depends on the version.
TESTS = [f"tests/{name}" for name in ("unit", "model", "fuzz", "conformance", "integration")]
#: Left out of these folders: tests with other servers, and tests about the tests and the
#: benchmarks, which draw with a large library.
NOT_OF_THE_VERSION = [
    "tests/conformance/servers",
    "tests/integration/test_warm_processes.py",
    "tests/unit/test_benchmarks.py",
    "tests/unit/test_contributing.py",
    "tests/unit/test_tools.py",
]
TESTS += [f"--ignore={path}" for path in NOT_OF_THE_VERSION]
# Several Pythons run at once, and `make test` may run beside them.
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]


def prepare(python: str, venv: Path) -> None:
    """Make the virtual environment, unless it is newer than pyproject.toml.

    Raises:
        subprocess.CalledProcessError: It cannot be made.
    """
    stamp = venv / STAMP
    if stamp.exists() and stamp.stat().st_mtime > PROJECT.stat().st_mtime:
        return
    own = str(venv / "bin" / "python")
    if not Path(own).exists():
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
        pip = ["install", "--quiet", "--upgrade", "pip>=25.1"]
        subprocess.run([own, "-m", "pip", *pip], check=True)
    pip = ["install", "--quiet", "--no-compile", "--editable", ".", "--group", GROUP]
    subprocess.run([own, "-m", "pip", *pip], cwd=ROOT, check=True)
    stamp.touch()


def run(python: str, venv: Path, arguments: Sequence[str]) -> bool:
    """Make a virtual environment, run the tests in it, and return whether they pass."""
    try:
        prepare(python, venv)
    except subprocess.CalledProcessError as error:
        click.echo(f"{venv.name} cannot be made: {error}")
        return False
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(venv / "pycache")}
    # Hypothesis tries more examples on the main Python.
    env["FEW_EXAMPLES"] = "1"
    # The installation compiles nothing. Without a cache for what is compiled later, each test
    # process would compile boto3 again, which would add up to minutes.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(venv / "bin" / "python"), *PYTEST, *(arguments or TESTS)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, **output)
    click.echo(f"{venv.name}:\n{done.stdout}")
    return done.returncode == 0


def judge(version: str, arguments: Sequence[str]) -> tuple[bool | None, str]:
    """Run the tests on a version. Return whether they passed, None without it, and the verdict."""
    python = find(version)
    if python is None:
        return None, f"Python {version} is not on this machine: not run"
    click.echo(f"Python {version}: {python}")
    begun = time.monotonic()
    passed = run(python, ROOT / f".venv-{version}", arguments)
    how = "passed" if passed else "FAILED"
    return passed, f"Python {version}: {how} in {time.monotonic() - begun:.0f} s"


@click.command()
@click.option("--only", multiple=True, metavar="3.X", help="This one, be it the running one.")
@click.argument("arguments", nargs=-1)
def main(only: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    """Run the tests that depend on Python's version on each supported Python that is found.

    ARGUMENTS go to pytest, and replace the usual folders. The Python that runs this command is
    left out because `make test` has run it.
    """
    versions = supported(PROJECT.read_text())
    if unknown := sorted({*only} - {*versions}):
        raise click.BadParameter(f"{', '.join(unknown)}; supported are {', '.join(versions)}")
    wanted = only or [version for version in versions if version != RUNNING]
    # One process for each Python: a second would collect all tests and start its servers again.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda version: judge(version, arguments), wanted))
    for _, verdict in verdicts:
        click.echo(verdict)
    results = [passed for passed, _ in verdicts]
    was_run = any(passed is not None for passed in results)
    if not was_run:
        click.echo(f"No other Python than {RUNNING} was found: nothing was run")
    # If Pythons were requested by name, running none of them is a failure.
    sys.exit(False in results or bool(only and not was_run))


if __name__ == "__main__":
    main()
