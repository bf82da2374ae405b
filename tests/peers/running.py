"""Runs a suite of another project with its own pytest configuration, in its own folder."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.peers.backend import RedisServer
from tests.peers.comparing import Result
from tests.peers.suites import Suite
from tests.support.environment import SAFE_ENV
from tests.support.servers import MinistackServer

ROOT = Path(__file__).parents[2]
#: Of one test, in seconds: one that hangs is a failure.
TIMEOUT = 300
#: pytest's exit codes of a run that came to its end: all passed, some failed.
_CAME_TO_AN_END = (0, 1)

#: Celery's tests start `celery` by its name.
_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def run(
    suite: Suite, folder: Path, log: Path, plugins: Sequence[str], tests: Sequence[str] = ()
) -> dict[str, Result]:
    """Run a suite's tests, or some of them, and return what became of each.

    Args:
        folder: Where its tests are.
        log: Takes what pytest writes.
        plugins: The pytest plugins of this run.

    Raises:
        RuntimeError: The run did not come to its end.
    """
    outcomes = log.with_suffix(".json")
    outcomes.unlink(missing_ok=True)
    with servers(suite, folder, log) as env, log.open("w") as writing:
        done = subprocess.run(
            [*_command(suite, plugins), *(tests or suite.paths)],
            cwd=folder,
            env={**os.environ, **SAFE_ENV, **env, "PATH": _PATH, "PEERS_OUTCOMES": str(outcomes)},
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
    pytest = [sys.executable, "-m", "pytest", "-v", "--tb=native", "--timeout", str(TIMEOUT)]
    # Tests that fail are run again by us, and only those.
    loaded = ("no:cacheprovider", "no:rerunfailures", "tests.peers.plugins.outcomes", *plugins)
    return [
        *pytest,
        *(argument for plugin in loaded for argument in ("-p", plugin)),
        *(f"--deselect={test}" for test in suite.left_out),
    ]


@contextlib.contextmanager
def servers(suite: Suite, folder: Path, run_log: Path) -> Iterator[Mapping[str, str]]:
    """Serve what a suite needs, new for each run; yield its environment variables."""
    env = {"PYTHONPATH": str(ROOT)}
    if not suite.on_sqs:
        yield env
        return
    options = {
        "region": "us-east-1",
        "is_secure": False,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
    }

    def log(name: str) -> Path:
        return run_log.with_suffix(f".{name}.log")

    # Celery's conftest reads it.
    config = folder / "integration-tests-config.json"
    config.write_text(json.dumps({"broker_transport_options": options}))
    sqs, redis = MinistackServer(log("ministack")), RedisServer(log("redis"))
    with sqs, redis:
        yield {
            **env,
            "TEST_BROKER": sqs.broker_url,
            "TEST_BACKEND": redis.url,
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(redis.port),
        }
