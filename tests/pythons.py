"""`python -m tests.pythons`: the tests that depend on Python's version, on each that we support.

Each has a virtual environment of its own, `.venv-3.X`. A Python that this machine lacks is
named, and not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
STAMP = "pythons.stamp"
GROUP = "test-pythons"
#: What needs no Spark, no browser and no worker process. Not the simulation: it takes longer than
#: all of these, and nothing in it depends on the version.
TESTS = [f"tests/{name}" for name in ("unit", "model", "fuzz", "conformance", "integration")]
TESTS += ["--ignore=tests/conformance/servers"]
PYTEST = ["-m", "pytest", "-q", "-p", "xdist", "-n", "2", "--dist", "worksteal"]
# Several Pythons may run at once, and `make test` beside them.
PYTEST += ["-p", "no:cacheprovider"]
#: How long a Python may take to say what it is, in seconds.
ANSWER_SECONDS = 60.0
ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def supported(project: str) -> list[str]:
    """Return the versions that the classifiers of a pyproject.toml name, in their order."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)


def find(version: str) -> str | None:
    """Return the path of a Python of this version, or None where the machine has none."""
    for path in _candidates(version):
        # The shims of pyenv are there for every version, and fail where it is not chosen.
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
        # Not of another make, as `pypy3.10-7.3.12` is.
        if re.fullmatch(rf"{re.escape(version)}(\.\d+)?", name):
            prefix = _answer(["pyenv", "prefix", name])
            yield str(Path(prefix or "", "bin", f"python{version}"))
    if path := _answer(["uv", "python", "find", "--offline", version]):
        yield path


def _answer(command: Sequence[str]) -> str | None:
    """Return what a command prints, or None where it is missing or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


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
    """Run the tests in a virtual environment, which is made first; return whether they pass."""
    try:
        prepare(python, venv)
    except subprocess.CalledProcessError as error:
        click.echo(f"{venv.name} cannot be made: {error}")
        return False
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(venv / "pycache")}
    # Nothing is compiled at the installation. Where nothing were kept of what is compiled later,
    # each process of the tests would compile boto3 for itself: minutes, taken together.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(venv / "bin" / "python"), *PYTEST, *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0


@click.command()
@click.option("--only", multiple=True, metavar="3.X", help="This one, be it the running one.")
@click.argument("arguments", nargs=-1)
def main(only: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    """Run the tests that depend on Python's version on each that is supported and found.

    ARGUMENTS are pytest's, in the place of the usual folders. The Python that runs this is left
    out: `make test` has run it.
    """
    versions = supported(PROJECT.read_text())
    if unknown := sorted({*only} - {*versions}):
        raise click.BadParameter(f"{', '.join(unknown)}; supported are {', '.join(versions)}")
    lines, has_run, has_failed = [], False, False
    for version in only or [version for version in versions if version != RUNNING]:
        python = find(version)
        if python is None:
            lines.append(f"Python {version} is not on this machine: not run")
            continue
        click.echo(f"Python {version}: {python}")
        begun = time.monotonic()
        passes = run(python, ROOT / f".venv-{version}", arguments)
        seconds = time.monotonic() - begun
        lines.append(f"Python {version}: {'passed' if passes else 'FAILED'} in {seconds:.0f} s")
        has_run, has_failed = True, has_failed or not passes
    click.echo("\n".join(lines))
    if not has_run:
        click.echo(f"No other Python than {RUNNING} was found: nothing was run")
    # What was asked for by name is no matter of what the machine happens to have.
    sys.exit(has_failed or bool(only and not has_run))


if __name__ == "__main__":
    main()
