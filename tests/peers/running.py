"""Fetches a suite of another project, and runs it with its own pytest configuration."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.peers.suites import PLUGINS, Suite
from tests.support.environment import SAFE_ENV
from tests.support.servers import MinistackServer, ServerProcess

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "peers"
#: The parts used of a source distribution. Not its package: the installed one is tested.
_WANTED = ("t", "pyproject.toml", "setup.cfg")
#: Of one test, in seconds: one that hangs is a failure.
TIMEOUT = 300
#: pytest's exit codes of a complete run: all passed, some failed, no tests to run.
_CAME_TO_AN_END = (0, 1, 5)

#: Celery's tests start `celery` by its name.
_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@dataclass(frozen=True, slots=True)
class Result:
    """What happened to one test."""

    outcome: str
    error: str = ""


MISSING = Result("missing", "it was not run")


def passed(results: Mapping[str, Result]) -> set[str]:
    """Return the tests that passed."""
    return {test for test, result in results.items() if result.outcome == "passed"}


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


def run(
    suite: Suite,
    folder: Path,
    log: Path,
    plugins: Sequence[str],
    *,
    without: Collection[str] = (),
    shards: int = 1,
) -> dict[str, Result]:
    """Run a suite's tests and return the result of each.

    Args:
        folder: Where its tests are.
        log: Takes what pytest writes; with more than one process, each has a log beside it.
        plugins: The pytest plugins of this run.
        without: The ids of tests to leave out.
        shards: How many processes share the tests, each with its own servers.

    Raises:
        RuntimeError: The run did not complete.
    """
    if suite.on_sqs:
        _configure(folder)
    with TemporaryDirectory() as claims, ThreadPoolExecutor(shards) as side_by_side:
        left_out = Path(claims, "without.json")
        left_out.write_text(json.dumps(sorted(without)))
        env = {"PEERS_CLAIMS": claims, "PEERS_WITHOUT": str(left_out)}
        logs = [log.with_stem(f"{log.stem}-{n}") for n in range(shards)] if shards > 1 else [log]
        parts = [side_by_side.submit(_run, suite, folder, each, plugins, env) for each in logs]
        return {test: result for part in parts for test, result in part.result().items()}


def _run(
    suite: Suite, folder: Path, log: Path, plugins: Sequence[str], env: Mapping[str, str]
) -> dict[str, Result]:
    """Run what this process claims."""
    outcomes = log.with_suffix(".json")
    outcomes.unlink(missing_ok=True)
    with servers(suite, log) as served, log.open("w") as writing:
        done = subprocess.run(
            [*_command(suite, plugins), *suite.paths],
            cwd=folder,
            env={
                **os.environ,
                **SAFE_ENV,
                **env,
                **served,
                "PATH": _PATH,
                "PYTHONPATH": str(ROOT),
                "PYTEST_TIMEOUT": str(TIMEOUT),
                "PEERS_OUTCOMES": str(outcomes),
            },
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode not in _CAME_TO_AN_END or not outcomes.exists():
        end = log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"pytest exited with {done.returncode}; {log} ends:\n{end}")
    return {test: Result(*row) for test, row in json.loads(outcomes.read_text()).items()}


def _command(suite: Suite, plugins: Sequence[str]) -> list[str]:
    # Native tracebacks: pytest's own parse the sources, on which Python 3.11 fails where the
    # stack is deep ("AST constructor recursion depth mismatch"), and the whole run ends.
    pytest = [sys.executable, "-m", "pytest", "-v", "--tb=native"]
    # We run failed tests again, and only those.
    loaded = ("no:cacheprovider", "no:rerunfailures", f"{PLUGINS}.sharing", *plugins)
    return [
        *pytest,
        *(argument for plugin in loaded for argument in ("-p", plugin)),
        *(f"--deselect={test}" for test in suite.left_out),
    ]


def _configure(folder: Path) -> None:
    """Write what Celery's conftest reads, from the one folder of all processes."""
    options = {
        "region": "us-east-1",
        "is_secure": False,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
    }
    config = folder / "integration-tests-config.json"
    config.write_text(json.dumps({"broker_transport_options": options}))


class RedisServer(ServerProcess):
    """Debian's `redis-server`, with nothing kept on disk."""

    @property
    def url(self) -> str:
        """Where it is, as a result backend."""
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """Return the command that starts it.

        Raises:
            RuntimeError: There is none.
        """
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("there is no redis-server: install Debian's package of that name")
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]

    def answers(self) -> bool:
        """Return whether it answers, and not another Redis at its port."""
        at = ("127.0.0.1", self.port)
        with contextlib.suppress(OSError), socket.create_connection(at) as connection:
            connection.settimeout(1.0)
            connection.sendall(b"INFO server\r\n")
            return b"\r\nprocess_id:%d\r\n" % self.pid in connection.recv(1 << 16)
        return False


@contextlib.contextmanager
def servers(suite: Suite, run_log: Path) -> Iterator[Mapping[str, str]]:
    """Serve what a suite needs, new for each process; yield its environment variables."""
    if not suite.on_sqs:
        yield {}
        return

    def log(name: str) -> Path:
        return run_log.with_suffix(f".{name}.log")

    sqs, redis = MinistackServer(log("ministack")), RedisServer(log("redis"))
    with sqs, redis:
        yield {
            "PEERS_SQS": sqs.url,
            "TEST_BROKER": sqs.broker_url,
            "TEST_BACKEND": redis.url,
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(redis.port),
        }
