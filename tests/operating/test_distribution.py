"""The published package: built by `make dist`, installed by pip, and used outside the clone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from celery_sqs_heartbeat import __version__
from tests.support.markdown import ROOT, blocks
from tests.support.shell import Shell
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

README = "README.md"
PRODUCTION = "docs/howto/production.md"
#: The packages of the extra `pipeline`. The tests use those of their own environment, because an
#: installation takes half a gigabyte.
PIPELINE = ("pyspark", "py4j", "jinja2", "markupsafe")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what `make dist` builds and checks."""
    folder = tmp_path_factory.mktemp("dist")
    # No test installs anything in its own environment.
    stamp = f"{sys.prefix}/test.stamp"
    made = subprocess.run(
        ["make", "dist", f"DIST={folder}", f"VENV={sys.prefix}", f"--old-file={stamp}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert len(re.findall(r"PASSED", made.stdout)) == 2
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"celery_sqs_heartbeat-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment's folder of programs, with the wheel and all that it needs."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-compile", str(wheel)], check=True)
    return venv / "bin"


@pytest.fixture
def shell(fresh: Path, tmp_path: Path) -> Iterator[Shell]:
    """A user's terminals, in a folder with the README's project."""
    (project,), (_, operate) = blocks(README, "python"), blocks(PRODUCTION, "python")
    source = f"{project}\n\n{operate}"
    # The reader's folder, and any free port.
    source = source.replace("/var/log/proj/sqs", str(tmp_path / "journal"))
    (tmp_path / "proj.py").write_text(source.replace("127.0.0.1:9808", "127.0.0.1:0"))
    shell = Shell(tmp_path, fresh)
    yield shell
    shell.end()


def test_the_source_distribution_has_what_makes_the_wheel_and_no_more(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    listed = subprocess.run(
        ["tar", "-tzf", str(archive)], capture_output=True, text=True, check=True
    ).stdout.split()
    top = {Path(name).parts[1] for name in listed}
    assert top == {
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "celery_sqs_heartbeat",
        "pyproject.toml",
    }


def test_the_installed_wheel_does_what_the_readme_says(shell: Shell, fresh: Path) -> None:
    server = "python -m celery_sqs_heartbeat.testing.server --port 0 --queue celery:30:5"
    shell.start(server)
    (url,) = re.findall(r"http://\S+", shell.wait_for("http://"))
    shell.export(f"export CELERY_BROKER_URL=sqs://any:thing@{url.removeprefix('http://')}")
    found = shell.run(
        'python -c "import celery_sqs_heartbeat; print(celery_sqs_heartbeat.__file__)"'
    )
    assert found.startswith(str(fresh.parent))

    shell.start("celery -A proj worker --heartbeat-sqs --loglevel INFO")
    shell.wait_for("ready.")
    # Of the keeper's process, which is ready after the worker or before it.
    log = shell.wait_for("status page at http://")
    (page,) = re.findall(r"status page at (http://\S+)/", log)
    shell.run('python -c "from proj import add; add.delay(2, 2)"')
    shell.wait_for("succeeded in")

    assert "0 errors" in shell.run("celery -A proj sqs-heartbeat doctor")
    assert "celery@" in shell.run(f"celery -A proj sqs-heartbeat status --json --url {page}")
    with urllib.request.urlopen(f"{page}/metrics") as metrics:
        assert b"sqs_heartbeat_messages_received_total" in metrics.read()
    printing = "python -m celery_sqs_heartbeat.journal journal"
    wait_until(lambda: "proj.add" in shell.run(printing))
    shell.interrupt()

    with pytest.raises(subprocess.CalledProcessError) as refused:
        shell.run("celery -A proj sqs-heartbeat report journal")
    assert refused.value.returncode == 2
    bring_pipeline(fresh)
    shell.run("celery -A proj sqs-heartbeat report journal")
    assert "proj.add" in (shell.folder / "report.html").read_text()


def bring_pipeline(fresh: Path) -> None:
    """Give the new environment the packages of the extra, without another half a gigabyte."""
    (packages,) = fresh.parent.glob("lib/python*/site-packages")
    for name in PIPELINE:
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        os.symlink(spec.submodule_search_locations[0], packages / name)
